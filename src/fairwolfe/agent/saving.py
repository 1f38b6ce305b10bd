"""`Saving`: an agent as a file or bytes, and back."""

from __future__ import annotations

import io
import json
import os
from importlib.metadata import version
from typing import Any, Self

import numpy as np

from fairwolfe.agent import file as agent_file
from fairwolfe.agent.base import KEY, one_of
from fairwolfe.agent.items import Items
from fairwolfe.agent.ledger import Ledger
from fairwolfe.agent.names import Keys, arm_names
from fairwolfe.core.decision import Batch
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import IncompatibleState, InvalidInput

__all__ = ["Saving"]


class Saving(Items):
    """Everything that an agent keeps, written whole or not at all, and continued from."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; `Agent.load` continues from there.

        The file holds the secret that signs decisions: only its owner can read it.
        """
        agent_file.write(path, *self._content())

    def dump(self) -> bytes:
        """What `save` writes, as bytes for `Agent.restore`."""
        file = io.BytesIO()
        agent_file.write_to(file, *self._content())
        return file.getvalue()

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        with self.held() as running:
            ledger, kept = self._ledger.saved()
            arrays = {name: array.copy() for name, array in agent_file.arrays_of(running)}
            text = {
                "format": agent_file.FORMAT,
                "version": agent_file.VERSION,
                "library": version("fairwolfe"),
                "policy": repr(self.policy),
                "problem": json.loads(self._kind.problem.to_json()),
                "ledger": ledger,
                "key": self._key.hex(),
                "out_of_range": self._out_of_range,
                "refused": self._refused,
                "over_norm": self._over_norm,
                "warned": sorted(self._warned),
                "draws": list(self._draws.key),
                "expires": self._expires,
                "arms": self.arms,
            }
            if isinstance(self._called, Keys):
                kept["keys"] = self._called.saved()
            if self._young:
                waiting = filter(self._ledger.waits, self._young)
                young = [one_of(self._young[number], number) for number in waiting]
                data = tuple(np.frombuffer(one.to_bytes(), np.uint8) for one in Batch.merged(young))
                kept["young"] = np.frombuffer(pack(data), dtype=np.uint8)
        return text, arrays | kept

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], policy: Any = None, seed: int | None = None
    ) -> Self:
        """The agent that `save` wrote: the same decisions follow as without the pause.

        The policy is rebuilt from its text. One that holds functions, as Custom does, cannot be:
        pass the same one. Decisions made before the save can be answered (`Decision.from_bytes`
        brings them over), and so can those that the saved agent made after it, until it ended:
        each once. Those of other agents cannot, nor those of another process that loaded the file.

        With a `seed` the random draws that follow are its own: two processes that load one file
        with different seeds do not explore in the same way.
        """
        return cls._of(path, agent_file.read(path), policy, seed)

    @classmethod
    def restore(
        cls,
        data: bytes,
        policy: Any = None,
        seed: int | None = None,
        *,
        token: str | None = None,
    ) -> Self:
        """The agent that `dump` wrote; as `load`.

        With the `token` that it had its ids continue too, as if there had been no pause: what it
        did since the dump has to be done again (`issue`, `update_many`), and nobody else may
        continue from the same bytes.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInput(f"the data is {data!r:.80}; give the bytes that Agent.dump returned")
        content = agent_file.read_from(io.BytesIO(data), "the data")
        return cls._of("the data", content, policy, seed, token)

    @classmethod
    def _of(
        cls,
        path: object,
        content: tuple[dict[str, Any], dict[str, Any]],
        policy: Any,
        seed: int | None,
        token: str | None = None,
    ) -> Self:
        text, arrays = content
        if seed is not None:
            Numbered.of(seed)  # a bad one raises as such, not as a fault of the file
        with agent_file.refusals(path):
            problem = Problem.from_json(json.dumps(text["problem"]))
            rebuilt = agent_file.policy_of(text["policy"], policy, path)
            kept = {name: arrays.pop(name) for name in ("answered", "recovered")}
            young, keys = arrays.pop("young", None), arrays.pop("keys", None)
            running = agent_file.rebuilt(rebuilt, problem, arrays)
            agent = cls.__new__(cls)
            ledger = Ledger.loaded(text["ledger"], kept, token)
            agent._start(running, ledger, agent_file.secret(text["key"], KEY))
            if running.t != ledger.answered:
                raise IncompatibleState(
                    f"{path} holds a state of {running.t} answers and a ledger of {ledger.answered}"
                )
            for name in ("out_of_range", "refused", "over_norm"):
                setattr(agent, f"_{name}", whole_number(name, text[name], 0))
            agent._warned = agent_file.words("warned", text["warned"])
            agent._draws = Numbered(agent_file.key("draws", text["draws"]))
            if seed is not None:
                agent._draws = agent._draws.apart(seed, "load")
            expires = text["expires"]
            agent._expires = None if expires is None else whole_number("expires", expires)
            if text["arms"] is not None:
                agent._called = arm_names(text["arms"], problem)
            if keys is not None:
                agent._called = Keys.loaded(keys, agent._catalogue())
            for data in () if young is None else unpack(young.tobytes()):
                batch = Batch.from_bytes(data.tobytes())
                agent._verify(batch)
                ledger.entries(batch)
                agent._young.update(dict.fromkeys(batch.numbers.tolist(), batch))
            agent._young = dict(sorted(agent._young.items()))
        return agent
