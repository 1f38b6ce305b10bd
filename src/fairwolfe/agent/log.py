"""`DecisionLog`: the file to which an agent appends every decision that was answered.

JSON Lines in the form of `fairwolfe.data.decisions`. Lines are handed to the operating system as
each `update` or `update_many` ends, so that a process that is killed loses no answered decision but
the one it was writing, the line of which may be cut.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.agent.ledger import Ledger
from fairwolfe.core.catalogue import Candidates
from fairwolfe.core.contexts import Arms, Bilinear
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.feedback import Shown, row_of
from fairwolfe.core.folders import file_path
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Kind, Stack
from fairwolfe.data.decisions import Header, is_decisions, line_of, read
from fairwolfe.errors import InvalidInput, MissingData

__all__ = ["DecisionLog"]

_TAIL = 1 << 16  # bytes in which the end of the last whole line is looked for at once

logger = logging.getLogger("fairwolfe")


class Kept(NamedTuple):
    """The context of a decision, or one of those that were read together."""

    given: Any  # a checked context, or a Stack
    row: int | None  # of a Stack
    time: float
    columns: dict[str, Any]  # of the row, in addition to the context


class DecisionLog:
    """Contexts of open decisions, and the file for those that were answered.

    A row is staged before its answer is applied, and written once the ledger has it: whatever
    comes between, each answered decision is written once.
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: Kind, mark: tuple[Any, ...], header: Header
    ) -> None:
        self._file = -1
        if kind.name not in ("arms", "ranking"):
            raise InvalidInput(
                f"decisions of kind {kind.name!r} have no table; log is for arms and rankings"
            )
        path = file_path(path)
        self.path, self.mark, self.header = path, mark, header
        self.logged = 0
        self.unlogged = 0  # answered, but made before the log began, or elsewhere
        self._contexts: dict[int, Kept] = {}
        self._staged: dict[int, dict[str, Any]] = {}
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidInput(f"the path of a log is {path!r:.60}; give a text, such as log.jsonl")
        _prepare(path, header)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            wrong = MissingData if isinstance(error, FileNotFoundError) else InvalidInput
            raise wrong(
                f"the log {os.fspath(path)!r} cannot be opened ({error.strerror}); name a file in "
                "a folder that exists and can be written"
            ) from error
        if os.fstat(self._file).st_size == 0:
            self._write(line_of(header.to_dict()))

    def take_over(self, older: DecisionLog) -> None:
        """What is open in an older log is open in this one."""
        self._contexts = older._contexts

    def counts(self) -> dict[str, int]:
        """For `Agent.stats`."""
        return {"logged": self.logged, "unlogged": self.unlogged}

    def close(self) -> None:
        """Append nothing more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    # --- decisions -----------------------------------------------------------------------------

    def remember_context(
        self, number: int, kind: Kind, context: Any, given: Any, names: Any
    ) -> None:
        """A decision is made in a context, which was read as `given`; names: of its arms, where
        they came with it. What is kept are copies: the caller may use its arrays again.
        """
        columns: dict[str, Any] = {} if names is None else {"names": list(names)}
        kept = given
        if isinstance(given, Arms):
            whole = given if given.places is None else kind.read(context)
            kept = whole._replace(features=whole.features.copy(), places=given.places)
            if isinstance(context, Bilinear):
                columns |= {"user": np.array(context.user), "arms": np.array(context.items)}
                kept = kept._replace(features=whole.features[:0])
        elif isinstance(given, Candidates):
            items = given.items if given.kept else given.items.copy()
            kept = given._replace(user=given.user.copy(), items=items)
        self._contexts[number] = Kept(kept, None, time.time(), columns)

    def remember_contexts(self, first: int, kind: Kind, stack: Stack) -> None:
        """Decisions are made in contexts that were read from one array, from number `first` on."""
        given, now = stack.given, time.time()
        if isinstance(given, Arms):
            stack = stack._replace(given=given._replace(features=given.features.copy()))
        else:
            stack = stack._replace(given=given._replace(user=given.user.copy()))
        for i in range(stack.rows):
            self._contexts[first + i] = Kept((kind, stack), i, now, {})

    def forget(self, number: int) -> None:
        """A decision gets no feedback any more."""
        self._contexts.pop(number, None)

    # --- answers -------------------------------------------------------------------------------

    def stage(self, token: str, batch: Batch, observation: Any) -> None:
        """Answers are about to be applied; token: that of the agent's own decisions."""
        for i, decision in enumerate(batch):
            self._stage(token, decision, row_of(observation, i))

    def _stage(self, token: str, decision: Decision, observation: Any) -> None:
        number = decision.number
        kept = self._contexts.get(number) if decision.token == token else None
        if kept is None:
            self.unlogged += 1
            return
        self._staged[number] = {
            "id": decision.id,
            "number": number,
            "time": kept.time,
            "probability": decision.probability,
            **_context_columns(kept),
            **_answer_columns(self.header, decision.action, observation),
        }

    def settle(self, ledger: Ledger, mark: tuple[Any, ...], header: Callable[[], Header]) -> None:
        """Write the staged rows whose answers were applied; drop the others. A new header goes
        before them where the objects of the mark are others than before.
        """
        if self._staged:
            uninterrupted(lambda: self._settle(ledger, mark, header))

    def _settle(self, ledger: Ledger, mark: tuple[Any, ...], header: Callable[[], Header]) -> None:
        staged, self._staged = self._staged, {}
        rows = {number: row for number, row in staged.items() if not ledger.waits(number)}
        if not rows:
            return
        if self._file < 0:
            self.unlogged += len(rows)
            return
        lines = [line_of(row) for row in rows.values()]
        if any(new is not old for new, old in zip(mark, self.mark, strict=True)):
            self.mark, self.header = mark, header()
            lines.insert(0, line_of(self.header.to_dict()))
        for number in rows:
            self._contexts.pop(number, None)
        try:
            self._write(b"".join(lines))
            self.logged += len(rows)
        except OSError as error:  # the answers count; only their rows are lost
            self.unlogged += len(rows)
            text = (
                f"{self.path} cannot be written ({error.strerror or error}), so decisions are not "
                "logged any more; make room and call agent.log(path) again"
            )
            self.close()
            logger.warning(text)
            warnings.warn(text, stacklevel=4)

    def _write(self, data: bytes) -> None:
        """One call of the system where it can be, so that lines of two agents do not mix."""
        while data:
            data = data[os.write(self._file, data) :]


def _context_columns(kept: Kept) -> dict[str, Any]:
    given = kept.given
    if kept.row is not None:
        kind, stack = kept.given
        given = kind.single(stack, kept.row)
    columns = dict(kept.columns)
    if isinstance(given, Arms):
        if "arms" not in columns:
            if given.per_arm:
                columns["features"] = given.features[0]
            else:
                columns["context"] = given.features
        if given.places is not None:
            columns["candidates"] = given.places
        return columns
    columns["user"] = given.user
    if not given.kept:
        columns["items"] = given.items.T
    if given.places.size or not given.kept:
        columns["candidates"] = given.ids
    if given.pinned.size:
        columns["pinned"] = np.where(given.pinned < 0, -1, given.ids[given.pinned])
    return columns


def _answer_columns(header: Header, action: Any, observation: Any) -> dict[str, Any]:
    names = header.problem.rewards
    if isinstance(observation, Shown):
        slots = {f"reward.{name}": observation.rewards[:, r] for r, name in enumerate(names)}
        return {"ranking": action, "exposed": observation.exposed, **slots}
    rewards = {f"reward.{name}": observation[r] for r, name in enumerate(names)}
    return {"action": action, **rewards}


def _prepare(path: str | os.PathLike[str], header: Header) -> None:
    """A file that exists must continue with this header; a last line that was cut is taken off."""
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    if not is_decisions(path):
        raise InvalidInput(
            f"{path} exists and is not a log of decisions; name a new file, or a log to continue"
        )
    older, _ = read(path)
    if not header.continues(older):
        raise InvalidInput(
            f"{path} is the log of another problem; name a new file, or a log of this problem"
        )
    with open(path, "rb+") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(end - _TAIL, 0)
            file.seek(start)
            last = file.read(end - start).rfind(b"\n")
            if last >= 0:
                end = start + last + 1
                break
            end = start
        if end < size:
            logger.warning("the last line of %s is incomplete; it is removed", path)
            file.truncate(end)
