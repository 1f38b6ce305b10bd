"""The kernel pattern: all that knows numba, with `lean`, and imports it at the first kernel call.

Every hot formula of the library is a *kernel*: a plain function over plain arrays, compiled without
fastmath, cached on disk, free of the interpreter lock. Five small things make the pattern:

- `kernel`: the decorator. Nothing is imported, loaded or compiled before the first use.
- `fma`: explicit fused multiply-add, so that speed does not need fastmath and bits do not depend
  on the CPU or on which process compiled.
- `distinct`: first statement of a heavy kernel; promises that its arrays do not overlap, so that
  the loop is vectorised the same way wherever it is called from.
- `function_at`: calls a kernel by its *address*. Functions are data: a sum of objectives is a
  kernel whose parameters hold the addresses of its parts (`Kernel.address`).
- a cache folder named by a digest of all kernel sources, because numba's own cache does not notice
  a change in another file.

Kernels are compiled, or loaded from the cache, in a separate thread: a signal is then never
delivered inside the compiler, which does not survive an exception. There is one lock, numba's own,
and it is taken first, so that threads cannot wait for each other.

``python -m fairwolfe.kernels.compile`` compiles every kernel that declares a signature.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial, update_wrapper
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

from fairwolfe.core.folders import cache_folder
from fairwolfe.core.interrupts import uninterrupted

__all__ = [
    "Kernel",
    "at_hand",
    "call_back",
    "clock",
    "compilations",
    "cube_at",
    "data_of",
    "distinct",
    "fma",
    "function_at",
    "integers_at",
    "kept_in",
    "kernel",
    "matrix_at",
    "preparations",
    "ready",
    "vector_at",
    "warm_all",
]

P = ParamSpec("P")
R = TypeVar("R")

WORDS = 4
"""Of an array in a frame: its address and up to three sizes."""

_KERNELS: list[Kernel[..., Any]] = []
_BY_ADDRESS: set[str] = set()  # signatures of what is called by its address
_UNUSED_SECONDS = 30 * 24 * 3600.0
_PACKAGE = Path(__file__).parents[1]
_QUIET_SECONDS = 1.0  # of compiling, before it is reported
_FORK_SECONDS = 20.0  # that a fork waits for the compiler


class Kernel(Generic[P, R]):
    """A compiled function over plain arrays; compiles or loads at its first use."""

    def __init__(
        self, function: Callable[P, R], signature: str | None = None, constants: bool = True
    ) -> None:
        self.function = function
        self.signature = signature
        self.constants = constants and signature is None
        self._part: Any = None
        self._dispatcher: Any = None
        self._called: Any = None
        self.call: Callable[P, R] = self._first
        """How the hottest lines call it: numba's own entry, without a step in Python."""
        self._address = 0
        update_wrapper(self, function)
        _KERNELS.append(self)

    @property
    def part(self) -> Any:
        """numba's own object for this function (made on first use), as other kernels call it."""
        if self._part is None:
            _prepare([self._make_part])
        return self._part

    @property
    def dispatcher(self) -> Any:
        """The same as it is called by its address."""
        if self._dispatcher is None:
            _prepare([self._make])
        return self._dispatcher

    @property
    def called(self) -> Any:
        """The same as Python calls it."""
        if self._called is None:
            _prepare([self._make_called])
        return self._called

    @property
    def bare(self) -> bool:
        """Whether it is compiled without the way in from Python, which takes time to compile too.

        It has no signature or one that is called by address, so that kernels alone call it. If
        Python does, it is compiled once more.
        """
        return self.signature is None or self.signature in _BY_ADDRESS

    def _make_part(self) -> None:
        if self._part is None:
            self._part = _dispatcher(self, "part")

    def _make(self) -> None:
        if self._dispatcher is None:
            self._dispatcher = _dispatcher(self, "bare" if self.bare else "called")

    def _make_called(self) -> None:
        if self._called is None:
            self._called = self.dispatcher
            if self.bare:
                self._called = _dispatcher(self, "called")

    @property
    def _numba_type_(self) -> Any:
        # numba asks for this attribute when one kernel names another.
        from numba.core import types

        return types.Dispatcher(self.part)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(*args, **kwargs)

    def _first(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """`call` before the kernel is made."""
        self.call = self.called
        return self.call(*args, **kwargs)

    @property
    def address(self) -> int:
        """The address of the machine code of the declared signature in *this* process.

        An address of user space is below 2**53, so it is exact in the float64 `params` of another
        kernel. It means nothing in another process: never store or pickle it.
        """
        if not self._address:
            ready([self])
        return self._address

    def _place(self) -> None:
        """Compile or load the declared signature."""
        if not self._address:
            wanted = tuple(_parsed(self.signature)[0])
            self.dispatcher.compile(wanted)
            result = self.dispatcher.overloads[wanted]
            name = result.fndesc.llvm_func_name
            _count_preparation()
            self._address = result.library.get_pointer_to_function(name)

    def __repr__(self) -> str:
        return f"<kernel {self.function.__module__}.{self.function.__qualname__}>"


@overload
def kernel(function: Callable[P, R]) -> Kernel[P, R]: ...
@overload
def kernel(
    *, signature: str | None = None, constants: bool = True
) -> Callable[[Callable[P, R]], Kernel[P, R]]: ...
def kernel(function: Any = None, *, signature: str | None = None, constants: bool = True) -> Any:
    """Make a function a kernel. With a signature it has an address and is compiled ahead of time.

    constants: without a signature, whether it is compiled for every constant that a kernel calls
    it with: what is large runs faster then, and what is small is compiled many times for nothing.

    >>> import numpy as np
    >>> @kernel
    ... def total(x: np.ndarray) -> float:
    ...     s = 0.0
    ...     for i in range(x.size):
    ...         s = fma(2.0, x[i], s)
    ...     return s
    >>> total.signature is None
    True
    """
    if function is None:
        return lambda f: Kernel(f, signature, constants)
    return Kernel(function)


def ready(kernels: Iterable[Kernel[..., Any]]) -> int:
    """Compile or load these kernels, each with a signature; how many they are, each counted once.

    What is compiled for more than a second is announced on stderr. An exception of a signal
    handler, such as KeyboardInterrupt, is raised when the current kernel is ready.
    """
    wanted = list(dict.fromkeys(kernels))
    for one in wanted:
        if one.signature is None:
            raise TypeError(f"kernel {one.function.__name__} declares no signature")
    missing = [one for one in wanted if not one._address]
    if missing:
        _prepare([one._place for one in missing])
    return len(wanted)


def compilations() -> int:
    """How many functions this process has compiled itself rather than loaded from the cache."""
    dispatchers = {
        id(d): d
        for k in list(_KERNELS)
        for d in (k._part, k._dispatcher, k._called)
        if d is not None
    }
    return sum(sum(list(d.stats.cache_misses.values())) for d in dispatchers.values())


def at_hand() -> int:
    """How many kernels with a signature are ready in this process."""
    return sum(1 for k in list(_KERNELS) if k._address)


def preparations() -> int:
    """How often this process had to compile or load a kernel for a call or an address."""
    return _prepared


def clock() -> float:
    """`time.perf_counter`, but it stops while this thread waits for kernels.

    What is measured with it is the same with an empty cache and with a full one.
    """
    return time.perf_counter() - getattr(_HERE, "waited", 0.0)


# --- compiling and loading, where no signal comes --------------------------------------------

_HERE = threading.local()  # of this thread: whether it is a helper, how long it has waited
_prepared = 0


def _count_preparation() -> None:
    global _prepared  # noqa: PLW0603 - written with the compiler's lock
    _prepared += 1


def _compiler_lock() -> Any:
    """The only lock. It is re-entrant: numba takes it again, and so does what numba calls."""
    from numba.core.compiler_lock import global_compiler_lock

    return global_compiler_lock


def _is_compiling() -> bool:
    """Whether this thread is inside the compiler already."""
    module = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(module, "global_compiler_lock", None)
    return getattr(_HERE, "helper", False) or (lock is not None and lock.is_locked())


def _prepare(works: list[Callable[[], None]]) -> None:
    """Do works for which numba is needed, one after the other, each in the shield."""
    if _is_compiling():
        for work in works:
            with _compiler_lock():
                work()
        return
    worked = clock()
    notice = _Notice(len(works))
    try:
        for work in works:
            _in_helper(work, notice)
            notice.done += 1
    finally:
        notice.close()
        _HERE.waited = time.perf_counter() - worked


def _in_helper(work: Callable[[], None], notice: _Notice) -> None:
    """Do a work in a separate thread, so that no interrupt comes inside the compiler."""

    def body() -> None:
        _HERE.helper = True
        with _compiler_lock():
            work()

    def wait(finished: threading.Event) -> None:
        while not finished.wait(notice.patience()):
            notice.report()

    uninterrupted(body, wait)


class _Notice:
    """One line on stderr about kernels that take more than a second to compile."""

    reporting = threading.Lock()  # one at a time, whatever the threads

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = 0
        self.began = time.perf_counter()
        self.before = compilations()
        self.last = ""

    def patience(self) -> float:
        """How long to wait before something may have to be reported."""
        return max(0.2, self.began + _QUIET_SECONDS - time.perf_counter())

    def report(self) -> None:
        """Report how far it is; again only on a terminal, in place."""
        if compilations() == self.before or time.perf_counter() < self.began + _QUIET_SECONDS:
            return
        if not self.last and not self.reporting.acquire(blocking=False):
            return
        line = f"compiling kernels, once on this machine: {self.done + 1} of {self.count}"
        if line != self.last and (not self.last or _on_terminal()):
            self._write(f"\r{line}" if _on_terminal() else f"{line}\n")
        self.last = line

    def close(self) -> None:
        """Report how long it took, if anything was reported."""
        if self.last:
            seconds = time.perf_counter() - self.began
            line = f"kernels ready: {self.done} of {self.count} after {seconds:.1f} s"
            start = "\r" if _on_terminal() else ""
            self._write(f"{start}{line.ljust(len(self.last) if start else 0)}\n")
            self.reporting.release()

    def _write(self, text: str) -> None:
        if os.environ.get("FAIRWOLFE_QUIET", "") in ("", "0") and sys.stderr is not None:
            with suppress(OSError, ValueError):  # it may be closed
                sys.stderr.write(text)
                sys.stderr.flush()


def _on_terminal() -> bool:
    """Whether a line can be written over: a progress bar takes whole lines only."""
    terminal = sys.__stderr__
    with suppress(ValueError):  # it may be closed
        return terminal is not None and sys.stderr is terminal and terminal.isatty()
    return False


def _locks() -> list[Any]:
    """What holds the locks of numba and LLVM, in the order in which they are taken."""
    if "numba" not in sys.modules:
        return []
    from llvmlite.binding import ffi  # waits, if another thread is about to import numba

    return [_compiler_lock(), ffi.lib._lock]


def _before_fork() -> None:
    # A child that is made while another thread compiles would wait for that thread for ever.
    _HERE.held = []
    for holder in _locks():
        if holder._lock.acquire(timeout=_FORK_SECONDS):
            _HERE.held.append(holder._lock)


def _after_fork() -> None:
    for lock in reversed(_HERE.held):
        lock.release()


def _after_fork_in_child() -> None:
    _after_fork()
    for holder in _locks():
        if holder._lock not in _HERE.held:
            holder._lock = threading.RLock()
    _Notice.reporting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )


# --- what can be called inside a kernel ------------------------------------------------------


class _Intrinsic:
    """An operation that exists only inside kernels; built when the first kernel that uses it is."""

    def __init__(self, name: str, build: Callable[[], Any]) -> None:
        self.__name__ = name
        self._build = cache(build)

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        with _compiler_lock():
            operation = self._build()
            cpu_target.typing_context.refresh()
            return cpu_target.typing_context.resolve_value_type(operation)

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.__name__} can be called inside a kernel only")


def _build_fma() -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def fused(typing: Any, a: Any, b: Any, c: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fma(*args)

        return types.float64(types.float64, types.float64, types.float64), generate

    return fused


def _build_distinct() -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def promise(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            function = builder.function
            function.attributes.add("noinline")
            for argument in function.args:
                # numba passes an array as (meminfo, parent, nitems, itemsize, data, ...): the
                # fifth, number 4, is the pointer to its data (and that of a long tuple none).
                if argument.name.endswith(".4") and argument.type.is_pointer:
                    argument.add_attribute("noalias")
            return context.get_dummy_value()

        return types.none(), generate

    return promise


def _build_call(signature: str) -> Any:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.core.errors import TypingError
    from numba.core.types import BaseTuple, StarArgTuple  # type: ignore[attr-defined]
    from numba.extending import intrinsic

    wanted, returned = _parsed(signature)
    returned = returned or types.none

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, address: Any, *args: Any) -> Any:
        given = args[0] if len(args) == 1 and isinstance(args[0], BaseTuple) else args
        if tuple(given) != tuple(wanted):
            raise TypingError(f"a function at an address takes {wanted}, not {tuple(given)}")

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            where, packed = values
            kind = context.call_conv.get_function_type(returned, wanted)
            callee = builder.inttoptr(where, ir.PointerType(kind))
            status, result = context.call_conv.call_function(
                builder, callee, returned, wanted, cgutils.unpack_tuple(builder, packed)
            )
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return result

        return returned(types.int64, StarArgTuple(wanted)), generate

    return call


def _build_call_back() -> Any:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    vector = types.Array(types.float64, 1, "C")

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing: Any, address: Any, z: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            where = args[0]
            x, y = (context.make_array(vector)(context, builder, a) for a in args[1:])
            real = ir.PointerType(ir.DoubleType())
            kind = ir.FunctionType(ir.VoidType(), [real, ir.IntType(64), real])
            builder.call(
                builder.inttoptr(where, ir.PointerType(kind)),
                [x.data, builder.extract_value(x.shape, 0), y.data],
            )
            return context.get_dummy_value()

        return types.none(types.int64, vector, vector), generate

    return call


_NUMBER = 8  # bytes


def _view(context: Any, builder: Any, array: Any, where: Any, shape: list[Any]) -> Any:
    """An array of numbers in a row from an address on."""
    from numba.core import cgutils, types

    from fairwolfe.kernels.lean import struct

    size = context.get_value_type(types.intp)(_NUMBER)
    strides, count = [size], shape[0]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    for length in shape[1:]:
        count = builder.mul(count, length)
    if not where.type.is_pointer:
        where = builder.inttoptr(where, context.get_data_type(array.dtype).as_pointer())
    fields = {
        "nitems": count,
        "itemsize": size,
        "data": where,
        "shape": cgutils.pack_array(builder, shape),
        "strides": cgutils.pack_array(builder, strides),
    }
    return struct(context, builder, array, fields)


def _field(context: Any, builder: Any, array: Any, value: Any, name: str) -> Any:
    from fairwolfe.kernels.lean import field

    return field(context, builder, array, value, name)


def _typed(takes: tuple[str, ...], signature: Any, generate: Callable[..., Any]) -> Any:
    """An operation that takes arguments of these names."""
    from numba.extending import intrinsic

    # numba reads the number of arguments from the function.
    source = f"lambda typing, {', '.join(takes)}: operation"
    return intrinsic(eval(source, {"operation": (signature, generate)}))


def _build_view(kind: str, axes: int) -> Any:
    from numba.core import types

    array = types.Array(getattr(types, kind), axes, "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _view(context, builder, array, args[0], list(args[1:]))

    sizes = ("a", "b", "c")[:axes]
    return _typed(("address", *sizes), array(*[types.int64] * (1 + axes)), generate)


def _build_framed(kind: str, axes: int) -> Any:
    from numba.core import types

    array, words = types.Array(getattr(types, kind), axes, "C"), types.Array(types.int64, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = _field(context, builder, words, args[0], "data")
        start = builder.mul(args[1], args[1].type(WORDS))
        read = [
            builder.load(builder.gep(data, [builder.add(start, start.type(i))]))
            for i in range(1 + axes)
        ]
        return _view(context, builder, array, read[0], read[1:])

    return _typed(("words", "place"), array(words, types.int64), generate)


def _build_section(axes: int, given: int) -> Any:
    """A part of an array with one axis less or as many, from a place on."""
    from numba.core import types

    array, whole = (types.Array(types.float64, n, "C") for n in (axes, given))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start, shape = args[1], list(args[2:])
        sizes = _field(context, builder, whole, args[0], "shape")
        rest = [builder.extract_value(sizes, i) for i in range(1, given)]
        for length in rest:
            start = builder.mul(start, length)
        data = builder.gep(_field(context, builder, whole, args[0], "data"), [start])
        return _view(context, builder, array, data, shape or rest)

    takes = ("array", "start", "n") if axes == 1 else ("array", "start")
    return _typed(takes, array(whole, *[types.int64] * (len(takes) - 1)), generate)


def _build_whole_number() -> Any:
    from numba.core import types

    numbers = types.Array(types.float64, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = _field(context, builder, numbers, args[0], "data")
        number = builder.load(builder.gep(data, [args[1]]))
        return builder.fptosi(number, context.get_value_type(types.int64))

    return _typed(("numbers", "place"), types.int64(numbers, types.int64), generate)


def _build_address() -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def address(typing: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = _field(context, builder, signature.args[0], args[0], "data")
            return builder.ptrtoint(data, context.get_value_type(types.int64))

        return types.int64(array), generate

    return address


vector_at: Any = _Intrinsic("vector_at", lambda: _build_view("float64", 1))
"""``vector_at(address, n)``: the n numbers there. The caller of the kernel keeps them alive."""

matrix_at: Any = _Intrinsic("matrix_at", lambda: _build_view("float64", 2))
"""``matrix_at(address, rows, columns)``: the same with two axes."""

cube_at: Any = _Intrinsic("cube_at", lambda: _build_view("float64", 3))
"""``cube_at(address, a, b, c)``: the same with three axes."""

integers_at: Any = _Intrinsic("integers_at", lambda: _build_view("int64", 1))
"""``integers_at(address, n)``: the n whole numbers there."""

vector: Any = _Intrinsic("vector", lambda: _build_framed("float64", 1))
"""``vector(words, place)``: a vector of a `Frame` (kernels/frames.py), whose words these are."""

integers: Any = _Intrinsic("integers", lambda: _build_framed("int64", 1))
"""``integers(words, place)``: a vector of whole numbers of a frame."""

matrix: Any = _Intrinsic("matrix", lambda: _build_framed("float64", 2))
"""``matrix(words, place)``: a matrix of a frame."""

cube: Any = _Intrinsic("cube", lambda: _build_framed("float64", 3))
"""``cube(words, place)``: an array of a frame that has three axes."""

address: Any = _Intrinsic("address", _build_whole_number)
"""``address(numbers, place)``: an address that is kept among numbers."""

part: Any = _Intrinsic("part", lambda: _build_section(1, 1))
"""``part(values, start, n)``: n numbers of a vector, from `start` on."""

row: Any = _Intrinsic("row", lambda: _build_section(1, 2))
"""``row(matrix, i, n)``: the first n numbers of a row."""

layer: Any = _Intrinsic("layer", lambda: _build_section(2, 3))
"""``layer(cube, i)``: one of the matrices of a cube."""

data_of: Any = _Intrinsic("data_of", _build_address)
"""``data_of(array)``: the address of its numbers. With `matrix_at` it is a `reshape` that takes the
compiler no time."""

fma: Callable[[float, float, float], float] = _Intrinsic("fma", _build_fma)
"""``fma(a, b, c)`` = a * b + c with one rounding: the same bits on every CPU."""

distinct: Callable[[], None] = _Intrinsic("distinct", _build_distinct)
"""A promise, first statement of a heavy kernel: its arrays never overlap (it is not inlined)."""

call_back: Callable[[int, Any, Any], None] = _Intrinsic("call_back", _build_call_back)
"""``call_back(address, z, out)``: a C function ``void(double *z, int64 n, double *out)``."""


def function_at(signature: str, *, only: bool = True) -> Callable[..., Any]:
    """A caller of kernels of that signature: ``caller(address, *arguments)`` inside a kernel.

    only: that they are called in this way alone; False where Python calls them too. What is called
    by its address is not compiled once more inside of who calls it.
    """
    if only:
        _BY_ADDRESS.add(signature)
    return _Intrinsic("function_at", lambda: _build_call(signature))


@cache
def _parsed(signature: str) -> Any:
    from numba.core import sigutils

    return sigutils.normalize_signature(signature)


# --- the cache on disk -----------------------------------------------------------------------


def _dispatcher(one: Kernel[..., Any], form: str) -> Any:
    """numba's object for a form of a kernel: "part" as other kernels call it, "bare" as it is
    called by its address, "called" as Python calls it, and by its address.
    """
    from numba import config, njit

    from fairwolfe.kernels import lean

    function = one.function
    file = Path(function.__code__.co_filename)
    # What was made by exec or belongs to no loaded module could not be found again.
    folder = _kernel_folder(_root(file)) if file.is_file() and _is_imported(function) else None
    # numba reads the folder when a function is decorated: set it for that moment only.
    before = config.CACHE_DIR
    # Its cache does not separate the forms, so they have separate folders.
    config.CACHE_DIR = before if folder is None else str(folder / form)
    try:
        dispatcher = njit(
            cache=folder is not None,
            nogil=True,
            error_model="numpy",
            no_cfunc_wrapper=True,
            no_cpython_wrapper=form != "called",
            pipeline_class=lean.PartCompiler if form == "part" else lean.WholeCompiler,
        )(function)
        if form == "part" and folder is not None:
            dispatcher._cache = lean.PartCache(function)
    finally:
        config.CACHE_DIR = before
    dispatcher._compiler._customize_flags = lean.Flags
    # numba calls this for types of arguments that it has not met.
    dispatcher._compile_for_args = partial(_first_call, dispatcher._compile_for_args)
    if not one.constants:  # numba calls this where one kernel calls another
        template = dispatcher.get_call_template
        dispatcher.get_call_template = partial(_called_by_kernels, template, one.signature)
    return dispatcher


def _called_by_kernels(
    template: Callable[..., Any], signature: str | None, args: Any, kws: Any
) -> Any:
    """The form of a kernel that another one calls: not a separate one for every constant among the
    arguments, and the declared one where numbers alone differ from that.
    """
    from numba.core import types
    from numba.core.types import unliteral  # type: ignore[attr-defined]

    given = tuple(unliteral(one) for one in args)
    declared = () if signature is None else tuple(_parsed(signature)[0])
    if len(given) == len(declared) and all(
        one == other or (isinstance(one, types.Number) and isinstance(other, types.Number))
        for one, other in zip(given, declared, strict=True)
    ):
        given = declared
    return template(given, {name: unliteral(one) for name, one in kws.items()})


def _first_call(compile_for: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    results: list[Any] = []

    def work() -> None:
        results.append(compile_for(*args, **kwargs))
        _count_preparation()

    _prepare([work])
    return results[0]


def _is_imported(function: Callable[..., Any]) -> bool:
    module = sys.modules.get(function.__module__)
    return module is not None and getattr(module, "__dict__", None) is function.__globals__


def _root(file: Path) -> Path:
    """The outermost package that a file belongs to, or the file itself."""
    root = file
    while (root.parent / "__init__.py").exists():
        root = root.parent
    return root


@cache
def _digest(root: Path) -> str:
    """Of every source file with a kernel: a change in one callee makes a new folder."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
        source = path.read_bytes()
        if b"@kernel" in source or path in (Path(__file__), Path(__file__).with_name("lean.py")):
            digest.update(path.name.encode() + b"\0" + source)
    return digest.hexdigest()[:16]


@cache
def _kernel_folder(root: Path) -> Path | None:
    """A writable folder for compiled kernels; None, with a warning, if none exists."""
    ours = _PACKAGE
    name = _digest(ours) if root == ours else f"{_digest(ours)}-{_digest(root)}"
    folder = cache_folder() / f"kernels-{name}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        copy = _copied(folder)
        if copy is not None:
            return copy
        warnings.warn(
            f"kernels cannot be kept in {folder} ({error.strerror}), so every process compiles "
            "them again; set FAIRWOLFE_CACHE to a writable folder",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    os.utime(folder)
    for other in folder.parent.glob("kernels-*"):
        with suppress(OSError):  # another process may be removing it
            if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def _copied(folder: Path) -> Path | None:
    """A warmed but read-only folder, as in a container image, where numba can write to it."""
    with suppress(OSError):
        if folder.is_dir():
            copy = tempfile.mkdtemp(prefix="fairwolfe-")
            atexit.register(_remove, copy, os.getpid())
            return Path(shutil.copytree(folder, copy, dirs_exist_ok=True))
    return None


def _remove(copy: str, owner: int) -> None:
    if os.getpid() == owner:  # a fork uses it too, and may end before
        shutil.rmtree(copy, ignore_errors=True)


def warm_all() -> int:
    """Compile or load every kernel of the package that declares a signature; how many."""
    import pkgutil
    from importlib import import_module

    for module in pkgutil.walk_packages([str(_PACKAGE)], "fairwolfe."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    return ready(k for k in _KERNELS if k.signature is not None)


def kept_in() -> Path | None:
    """The folder of the library's own compiled kernels."""
    return _kernel_folder(_PACKAGE)


if __name__ == "__main__":
    # Run as a script this file is another module than the one that holds the kernels.
    from importlib import import_module

    print(f"{import_module('fairwolfe.kernels.compile').warm_all()} kernels ready")
