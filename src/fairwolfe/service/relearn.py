"""The whole log of a service as a table from which another policy can learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairwolfe.agent.log_format import Header, Writer
from fairwolfe.errors import InvalidInput
from fairwolfe.service.export import Tick, closed_rows
from fairwolfe.service.log_file import LogFile
from fairwolfe.service.model import Model


def write_learnt(
    log: LogFile, model: Model, path: Path, tick: Tick
) -> tuple[dict[str, Any], list[str]]:
    """Write what a model has learnt from to a Parquet file, without arms that were not chosen; the
    options of an agent that is to learn it, and the items that are retired.

    model: in the state at the end of the log
    """
    if model.agent is None or model.decisions == 0:
        raise InvalidInput(f"model {model.name!r} has no decisions yet, and nothing to learn from")
    if log.deleted:
        raise InvalidInput(
            f"rows up to {log.deleted:,} of the log were deleted after an export; learn from the "
            "Parquet files of all exports instead: put them in a folder, and give that"
        )
    agent = model.agent
    options: dict[str, Any] = {"seed": model.setup.seed, "arms": model.setup.arms or None}
    gone: list[str] = []
    if model.ranks:
        with agent.held() as running:
            if (running.state.clocks != running.state.clocks.max()).any():
                raise InvalidInput(
                    f"items of model {model.name!r} came while it ran, and the averages of each "
                    "begin with it: that is no sum over the log; start the new policy anew"
                )
        options["items"] = dict(zip(agent.names or (), agent.features, strict=True))
        gone = [key for key in options["items"] if key not in agent.keys]
    items = (agent.names, agent.features) if model.ranks else (None, None)
    settings = (model.objective, repr(agent.policy), *items, agent.arms)
    alone = model.problem.n_arms is not None  # arms without features of their own
    with Writer(path, Header(agent.problem, *settings)) as table:
        for row in closed_rows(log, model, None, tick, chosen=True):
            if alone:
                row["features"] = row.pop("context")[0]
            elif not model.ranks:
                row["action"] = 0
            table.row(row)
    return options, gone
