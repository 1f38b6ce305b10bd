"""How numba compiles kernels in less time: the same machine code from a shorter way to it.

Half of what numba does for a kernel is not needed: a callee is optimised and made machine
code of, and then both again inside each of its callers; an index, a loop over `range` and an array
that is only a view become several times as many instructions as they need, which the optimiser
removes again; and passes search for what no kernel has. What is here leaves that out, by numba's
own means: a pipeline of passes, a code library, a lowering and a context. Whatever the short way
cannot do, numba's own does.

Only `kernels.compile` imports this, and only when the first kernel is compiled or loaded.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import binding
from numba.core import caching, cgutils, compiler, ir, lowering, typed_passes, types, untyped_passes
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, register_pass
from numba.core.cpu import CPUContext
from numba.core.extending import _Intrinsic, intrinsic
from numba.cpython.builtins import do_minmax

__all__ = ["Flags", "PartCache", "PartCompiler", "WholeCompiler", "field", "struct"]

_types: Any = types  # what numba's stubs do not know
_WHOLE = types.int64
_NUMBERS = (types.Number, types.Boolean)
_STORED = (types.float64, types.int64, types.uint64)  # as they are in memory
_PLAIN = frozenset(
    getattr(operator, name)
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
    )
)
_OFTEN_MISSING = ("static_getitem", "static_setitem", "__array__")
_LEFT_OUT = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes",
        "RewriteSemanticConstants",
        "DeadBranchPrune",
        "FindLiterallyCalls",
        "MakeFunctionToJitFunction",
        "LiteralPropagationSubPipelinePass",
        "LiteralUnroll",
        "InlineInlinables",
        "InlineOverloads",
        "NopythonRewrites",
        "DumpParforDiagnostics",
    }
)
"""Passes that change nothing in a kernel: they are for closures, `with`, literals and expressions
of whole arrays. A kernel that does not compile without them is compiled with them."""


class Flags(compiler.Flags):  # type: ignore[misc]
    """numba's settings of a compilation. They are a key of many dictionaries, and numba's own
    collect all their values again for each lookup. Whether Python can call a kernel makes no
    difference to what numba compiles for it: `np.empty` is compiled once for all kernels.
    """

    __slots__ = ()

    def __init__(self, copy_from: Any = None) -> None:
        super().__init__(copy_from)
        for name, option in self.options.items():
            self._values.setdefault(name, option.default)

    def __hash__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Flags:
            return False
        mine, others = self._values, other._values
        return mine == others or all(
            mine[name] == others[name] for name in mine if name != "no_cpython_wrapper"
        )


# --- operations ------------------------------------------------------------------------------


def _extreme(better: Any) -> Any:
    """max or min of two numbers, by numba's code, which it compiles as separate functions."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return do_minmax(context, builder, signature.args, args, better)

    def typed(typing: Any, a: Any, b: Any) -> Any:
        given = _types.unliteral(a), _types.unliteral(b)
        return typing.unify_types(*given)(*given), generate

    return typed


@intrinsic
def _larger(typing: Any, a: Any, b: Any) -> Any:
    """max(a, b)."""
    return _extreme(operator.gt)(typing, a, b)


@intrinsic
def _smaller(typing: Any, a: Any, b: Any) -> Any:
    """min(a, b)."""
    return _extreme(operator.lt)(typing, a, b)


@intrinsic
def _whole(typing: Any, x: Any) -> Any:
    """int(x)."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[0], signature.args[0], _WHOLE)

    given = _types.unliteral(x)
    return (_WHOLE(given), generate) if given in (types.float64, types.int64) else None


_BUILTINS: dict[Any, Any] = {(max, 2): _larger, (min, 2): _smaller, (int, 1): _whole}


# --- instructions ----------------------------------------------------------------------------


def field(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    """A field of a value that is a struct, such as an array."""
    position = context.data_model_manager[kind].get_field_position(name)
    return builder.extract_value(value, position)


def struct(context: Any, builder: Any, kind: Any, fields: dict[str, Any]) -> Any:
    """A value that is a struct with these fields; others are 0."""
    model = context.data_model_manager[kind]
    value = cgutils.get_null_value(context.get_value_type(kind))
    for name, part in fields.items():
        value = builder.insert_value(value, part, model.get_field_position(name))
    return value


def _is_number(array: Any, index: Any) -> bool:
    """Whether an index of an array gives a number of it."""
    given = tuple(index) if isinstance(index, _types.BaseTuple) else (index,)
    return (
        isinstance(array, types.Array)
        and array.layout == "C"
        and array.aligned
        and array.dtype in _STORED
        and len(given) == array.ndim
        and all(isinstance(one, types.Integer) for one in given)
    )


def _place(context: Any, builder: Any, array: Any, index: Any, value: Any, at: Any) -> Any:
    """The address of a number of an array; an index below 0 counts from the end."""
    several = isinstance(index, _types.BaseTuple)
    kinds = tuple(index) if several else (index,)
    indices = cgutils.unpack_tuple(builder, at) if several else [at]
    shape = field(context, builder, array, value, "shape")
    total, stride = None, None
    for axis in reversed(range(array.ndim)):
        signed, i = kinds[axis].signed, indices[axis]
        i = context.cast(builder, i, kinds[axis], types.intp if signed else types.uintp)
        size = builder.extract_value(shape, axis)
        if signed and not (hasattr(i, "constant") and i.constant >= 0):
            below = builder.icmp_signed("<", i, i.type(0))
            i = builder.select(below, builder.add(i, size), i)
        if stride is not None:
            i = builder.mul(i, stride)
        total = i if total is None else builder.add(i, total)
        stride = size if stride is None else builder.mul(stride, size)
    return builder.gep(field(context, builder, array, value, "data"), [total])


def _range(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """range(stop) or range(start, stop): its ends go with the value, for `_begin`."""
    zero, one = context.get_constant(_WHOLE, 0), context.get_constant(_WHOLE, 1)
    start, stop = (zero, *args)[-2:]
    fields = {"start": start, "stop": stop, "step": one}
    value = struct(context, builder, types.range_state64_type, fields)
    value.ends = start, stop
    return value


def _begin(context: Any, builder: Any, ends: Any) -> Any:
    """The iterator of such a range: a place for the number, and one for how many are left."""
    start, stop = ends
    zero = context.get_constant(_WHOLE, 0)
    left = builder.sub(stop, start)
    left = builder.select(builder.icmp_signed(">", left, zero), left, zero)
    places = []
    for first in (start, left):
        places.append(cgutils.alloca_once(builder, first.type))
        builder.store(first, places[-1])
    step = context.get_constant(_WHOLE, 1)
    fields = {"iter": places[0], "stop": stop, "step": step, "count": places[1]}
    return struct(context, builder, types.range_iter64_type, fields)


def _next(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """The next number of any range, and whether there was one."""
    kind = types.range_iter64_type
    now, step, left = (
        field(context, builder, kind, args[0], name) for name in ("iter", "step", "count")
    )
    number, count = builder.load(now), builder.load(left)
    valid = builder.icmp_signed(">", count, count.type(0))
    builder.store(builder.sub(count, count.type(1), flags=["nsw"]), left)
    builder.store(builder.add(number, step, flags=["nsw"]), now)
    fields = {"first": number, "second": valid}
    return struct(context, builder, signature.return_type, fields)


def _short(function: Any, args: Any) -> Any:
    """What makes short code of an operation, where there is any."""
    key = getattr(function, "typing_key", function)
    if key is range and len(args) <= 2 and all(one == _WHOLE for one in args):
        return _range
    if key == "iternext" and args[0] == types.range_iter64_type:
        return _next
    return None


class _Context(CPUContext):  # type: ignore[misc]
    """What numba asks for the code of an operation."""

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        short = _short(fn, sig.args)
        if short is not None:
            return lambda builder, args, loc=None: short(self, builder, sig, args)
        # Where it finds nothing, numba loads all its registries and tries again.
        rare = not isinstance(fn, type) and fn not in _OFTEN_MISSING
        general = super().get_function(fn, sig, _firstcall and rare)
        if fn != "getiter" or sig.args[0] != types.range_state64_type:
            return general

        def begin(builder: Any, args: Any, loc: Any = None) -> Any:
            ends = getattr(args[0], "ends", None)
            return general(builder, args, loc) if ends is None else _begin(self, builder, ends)

        return begin

    def pair_first(self, builder: Any, val: Any, ty: Any) -> Any:
        return field(self, builder, ty, val, "first")

    def pair_second(self, builder: Any, val: Any, ty: Any) -> Any:
        return field(self, builder, ty, val, "second")


class _Lower(lowering.Lower):  # type: ignore[misc]
    """What makes instructions of typed statements."""

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        signature = self.fndesc.calltypes[expr]
        if op not in _PLAIN or not all(isinstance(one, _NUMBERS) for one in signature.args):
            return super().lower_binop(resty, expr, op)
        typing = self.context.typing_context
        function = typing.resolve_value_type(op)
        if signature.args not in function._impl_keys:  # `x += y` was typed as another operation
            function.get_call_type(typing, signature.args, {})
        code = self.context.get_function(function, signature)
        value = code(self.builder, self._values((expr.lhs, expr.rhs), signature))
        return self.context.cast(self.builder, value, signature.return_type, resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        if self.context.enable_boundscheck or not _is_number(*signature.args):
            return super().lower_getitem(resty, expr, value, index, signature)
        values = self._values((value, index), signature)
        item = self.builder.load(_place(self.context, self.builder, *signature.args, *values))
        return self.context.cast(self.builder, item, signature.return_type, resty)

    def lower_setitem(self, target: Any, index: Any, value: Any, signature: Any) -> Any:
        array, place, kind = signature.args
        fits = _is_number(array, place) and isinstance(kind, _NUMBERS)
        if self.context.enable_boundscheck or not fits:
            return super().lower_setitem(target, index, value, signature)
        where, at, number = self._values((target, index, value), signature)
        number = self.context.cast(self.builder, number, kind, array.dtype)
        address = _place(self.context, self.builder, array, place, where, at)
        return self.builder.store(number, address)

    def _values(self, variables: Any, signature: Any) -> list[Any]:
        return [
            self.context.cast(self.builder, self.loadvar(one.name), self.typeof(one.name), kind)
            for one, kind in zip(variables, signature.args, strict=True)
        ]

    def delvar(self, name: str) -> None:
        if self.context.enable_nrt:
            super().delvar(name)
        elif name not in self._blk_local_varmap:  # as numba does; there is nothing to give back
            self._singly_assigned_vars.discard(name)


# --- libraries -------------------------------------------------------------------------------


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel and of what it calls. It is optimised as a whole, once."""

    def _optimize_functions(self, ll_module: Any) -> None:
        pass


class _NoEngine:
    """What has no machine code has no place for the address of its environment."""

    def set_env(self, env_name: str, env: Any) -> None:
        """Nothing: no kernel reads it."""


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel as others call it: optimised, and made machine code of, in theirs."""

    codegen = _NoEngine()

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        return 0


class _PartFile(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """What of a part is kept in a file."""

    def reduce(self, cres: Any) -> Any:
        described = cres.fndesc
        described.typemap = described.calltypes = None  # as numba does
        code = cres.library._final_module.as_bitcode()
        return cres.library.name, code, described, cres.environment, cres.signature

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        name, code, described, environment, signature = payload
        library = _Part(target_context.codegen(), name)
        library._final_module = binding.parse_bitcode(code)
        library._finalized = True
        return compiler.compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=target_context.get_executable(library, described, environment),
            library=library,
            signature=signature,
            objectmode=False,
            lifted=(),
            fndesc=described,
            environment=environment,
            reload_init=(),
        )


class PartCache(caching.FunctionCache):  # type: ignore[misc]
    """numba's cache of a function, for parts."""

    _impl_class = _PartFile


# --- passes ----------------------------------------------------------------------------------


@register_pass(mutates_CFG=False, analysis_only=False)
class _Builtins(FunctionPass):  # type: ignore[misc]
    """max, min and int become operations."""

    _name = "fairwolfe_builtins"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        blocks = state.func_ir.blocks.values()
        n_arguments = {
            call.func.name: len(call.args)
            for block in blocks
            for call in block.find_exprs(op="call")
            if not call.kws and call.vararg is None
        }
        for block in blocks:
            for named in block.find_insts(ir.Assign):
                value = named.value
                if isinstance(value, ir.Global) and value.value in (max, min, int):
                    key = value.value, n_arguments.get(named.target.name)
                    value.value = _BUILTINS.get(key, value.value)
        return True


def _owns(state: Any) -> bool:
    """Whether a function has arrays that are made in it or for it, or gives any away, and not only
    views of those that it is given: then it counts who uses them.
    """

    def counted(kind: Any) -> bool:
        return bool(state.targetctx.data_model_manager[kind].contains_nrt_meminfo())

    def basic(kind: Any) -> bool:
        parts = tuple(kind) if isinstance(kind, _types.BaseTuple) else (kind,)
        return all(isinstance(part, (types.Integer, _types.SliceType)) for part in parts)

    def is_view(value: Any) -> bool:
        if not isinstance(value, ir.Expr):
            return True  # another variable, an argument
        if value.op == "call":  # operations of kernels own nothing
            return isinstance(getattr(state.typemap[value.func.name], "typing_key", 0), _Intrinsic)
        if value.op == "getitem":
            return basic(state.typemap[value.index.name])
        return value.op in ("static_getitem", "cast", "phi", "build_tuple", "exhaust_iter")

    return counted(state.return_type) or any(
        counted(state.typemap[named.target.name]) and not is_view(named.value)
        for block in state.func_ir.blocks.values()
        for named in block.find_insts(ir.Assign)
    )


class _Prepare(AnalysisPass):  # type: ignore[misc]
    """Before instructions are made: into which library, and in which context."""

    library: Any

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.status.fail_reason = None  # of the short way, if this is the long one
        state.targetctx = state.targetctx.subtarget(enable_nrt=_owns(state))  # a copy
        state.targetctx.__class__ = _Context
        return False


@register_pass(mutates_CFG=False, analysis_only=True)
class _PrepareWhole(_Prepare):
    _name = "fairwolfe_whole"
    library = _Whole


@register_pass(mutates_CFG=False, analysis_only=True)
class _PreparePart(_Prepare):
    _name = "fairwolfe_part"
    library = _Part


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(typed_passes.NativeLowering):  # type: ignore[misc]
    _name = "fairwolfe_lowering"
    lowering_class = _Lower


class WholeCompiler(compiler.CompilerBase):  # type: ignore[misc]
    """numba's compiler for kernels that are called by their address or from Python."""

    prepare: Any = _PrepareWhole

    def define_pipelines(self) -> list[Any]:
        """The short one, and numba's own with the same code, for what the short one cannot do."""
        short, long = self._passes(_LEFT_OUT), self._passes(frozenset())
        short.add_pass_after(_Builtins, untyped_passes.IRProcessing)
        short.finalize()
        return [short, long]

    def _passes(self, left_out: frozenset[str]) -> Any:
        pipeline = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(self.prepare, typed_passes.AnnotateTypes)
        pipeline.passes = [
            (_Lowering if one is typed_passes.NativeLowering else one, text)
            for one, text in pipeline.passes
            if one.__name__ not in left_out
        ]
        pipeline.finalize()
        return pipeline


class PartCompiler(WholeCompiler):
    """The same for kernels as other kernels call them."""

    prepare = _PreparePart
