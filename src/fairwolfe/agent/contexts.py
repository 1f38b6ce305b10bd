"""`Contexts`: what people give to an agent to decide for, read and judged."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairwolfe.agent.items import Items
from fairwolfe.agent.log import DecisionLog
from fairwolfe.agent.names import ArmNames, Keys, named_rows
from fairwolfe.agent.options import (
    many,
    options_by_row,
)
from fairwolfe.core.kinds import Stack
from fairwolfe.data.decisions import Header
from fairwolfe.errors import InvalidInput
from fairwolfe.kinds import Ranking

__all__ = ["Contexts"]


class Contexts(Items):
    """Contexts in every form that `act` takes; a log keeps them until they are answered."""

    __slots__ = ()

    @property
    def _reads(self) -> bool:
        """Whether the policy takes checked contexts, not what the caller gave."""
        return bool(self._running.reads)

    def _plain(
        self, context: Any, options: dict[str, Any]
    ) -> tuple[Any, dict[str, Any], ArmNames | Keys | None]:
        """A context and what was given besides, with numbers for names where the kind has none, and
        the names.
        """
        called = self._called
        if isinstance(context, Mapping):
            if isinstance(called, ArmNames):
                raise InvalidInput(
                    "the context is a mapping, and the agent was given the names of its arms once; "
                    "give the features in that order"
                )
            context, called = named_rows(context, self._kind.problem)
        if called is not None:
            catalogue = self._kind.catalogue if isinstance(self._kind, Ranking) else None
            options = called.options(options, catalogue)
        return context, options, called

    def _given(self, context: Any, options: dict[str, Any]) -> Any:
        """The context, read and judged; under the lock, since items may change."""
        running = self._running
        if options and not running.reads:
            self._refuse_options(options)
        given = running.kind.read(context, **options)
        if not given.norm <= self._usual_norm:
            self._judge_norm(given, note=True)
        return given if running.reads else context

    def _asked(
        self, contexts: Any, advance: Any, candidates: Any, blocked: Any, pinned: Any
    ) -> tuple[Any, list[dict[str, Any]]]:
        """What `act_many` was given: contexts, and what each was given besides."""
        if isinstance(contexts, Mapping):
            raise InvalidInput(f"the contexts are {contexts!r:.80}; give a list of contexts")
        if not (advance is None or isinstance(advance, bool)):
            raise InvalidInput(f"advance is {advance!r}; give None, True or False")
        given = many("contexts", contexts)
        options = {"candidates": candidates, "blocked": blocked, "pinned": pinned}
        return given, options_by_row(len(given), **options)

    def _stacked(
        self, contexts: Any, options: list[dict[str, Any]], note: bool
    ) -> tuple[Stack, list[ArmNames | Keys | None] | None]:
        """Contexts in a row, read and judged, and their names; under the lock. note: whether large
        features are counted and warned of.
        """
        contexts, options, called = self._plain_many(contexts, options)
        if not self._reads:
            for one in options:
                self._refuse_options(one)
        stack = self._kind.read_many(contexts, options)
        if not stack.norm <= self._usual_norm:
            self._judge_norm(stack, note)
        return stack if self._reads else stack._replace(given=list(contexts)), called

    def _plain_many(
        self, contexts: Any, options: list[dict[str, Any]]
    ) -> tuple[Any, list[dict[str, Any]], list[ArmNames | Keys | None] | None]:
        """`_plain` for each of them."""
        called = self._called
        if isinstance(contexts, np.ndarray) and not options:
            if called is None:
                return contexts, options, None
            if isinstance(called, Keys) or contexts.shape[1:2] == (len(called.all),):
                return contexts, options, [called] * len(contexts)
        if called is None and not any(isinstance(one, Mapping) for one in contexts):
            return contexts, options, None
        plain, converted, names = [], [], []
        for i, context in enumerate(contexts):
            try:
                one, with_, by = self._plain(context, options[i] if options else {})
            except InvalidInput as error:
                raise InvalidInput(f"context {i}: {error}") from error
            plain.append(one)
            converted.append(with_)
            names.append(by)
        return plain, converted if any(converted) else [], names

    def _refuse_options(self, options: Mapping[str, Any]) -> None:
        extra = [name for name in options if name != "names"]
        if extra:
            raise InvalidInput(
                f"{self.policy!r} takes contexts as they are, without {' and '.join(extra)}; "
                "use a policy that has `kind`, such as FrankWolfe"
            )

    def _judge_norm(self, given: Any, note: bool) -> None:
        """Raise for features that would make the regression inaccurate; warn once for others."""
        stated, limit = self._kind.problem.feature_norm, self._running.limit
        if not given.norm <= limit:
            raise InvalidInput(
                f"{given.largest()}; the problem states a norm of at most {stated:g}, and from "
                f"more than {limit:g} nothing can be learnt: scale the features, or state "
                "a larger feature_norm in the problem"
            )
        if not note:
            return
        self._warn_once(
            "features",
            f"features of norm {given.norm:.4g} were given; the problem states at most "
            f"{stated:g}, and confidence widths depend on it: scale the features, or give Problem "
            "a larger feature_norm (reported once)",
        )
        self._over_norm += 1

    # --- the log of decisions ------------------------------------------------------------------

    def log(self, path: str | os.PathLike[str] | None) -> None:
        """From now on append every decision that is answered, with its context, to this file: what
        `fw.offpolicy.Log.of(path)` reads, JSON Lines as in `fairwolfe.data.decisions`. None ends
        it.

        A log of the same problem is continued; another path continues there with all open
        decisions. The context of an open decision is kept in memory until it is answered or
        expires. Decisions made before the call have no context here, and are counted in `stats()`
        as unlogged. A log belongs to the process: a loaded agent and a
        forked child have none until they are given one.
        """
        with self.held():
            log = None
            if path is not None:
                log = DecisionLog(path, self._kind, self._mark(), self._header())
            if self._log is not None:
                if log is not None:
                    log.take_over(self._log)
                self._log.close()
            self._log = log

    def _mark(self) -> tuple[Any, ...]:
        """What the header of the log is made of: the same objects while it holds."""
        return self._running.policy, self._kind.problem, self._called

    def _header(self) -> Header:
        """What is true of the rows of the log that follow."""
        kind = self._kind
        objective = None if self._bound is None else repr(self.policy.objective)
        problem, policy = kind.problem, repr(self.policy)
        if not isinstance(kind, Ranking):
            return Header(problem, objective, policy, arms=self.arms)
        kept = kind.catalogue.features
        features = kept.T.copy() if kept.shape[1] else None
        return Header(problem, objective, policy, self.names, features)

    def _remember(self, number: int, context: Any, given: Any, called: Any) -> None:
        """Keep the context of a decision for the log, until it is answered. Under the lock."""
        if self._log is None:
            return
        if isinstance(context, Mapping):
            context, _ = named_rows(context, self._kind.problem)
        by_context = isinstance(called, ArmNames) and called is not self._called
        checked = given if self._reads else self._kind.read(context)
        names = called.all if by_context else None
        self._log.remember_context(number, self._kind, context, checked, names)

    def _remember_many(self, stack: Stack, contexts: Any, called: Sequence[Any] | None) -> None:
        """The same for decisions made together."""
        first, some = self._ledger.issued, isinstance(stack.given, list)
        if not some and not isinstance(self._kind, Ranking):
            some = stack.given.places is not None  # and the others belong to the context too
        if self._log is not None and isinstance(contexts, np.ndarray) and not some:
            self._log.remember_contexts(first, self._kind, stack)
            return
        for i in range(stack.rows):
            given = self._kind.single(stack, i) if self._reads else stack.given[i]
            self._remember(first + i, contexts[i], given, called and called[i])
