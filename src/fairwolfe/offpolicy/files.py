"""The file of a log, in whichever form it is."""

from __future__ import annotations

import os
from typing import Any

from fairwolfe.core.problem import Problem
from fairwolfe.data.decisions import is_decisions, read
from fairwolfe.errors import InvalidInput, MissingData
from fairwolfe.offpolicy.decisions import Choices, Rankings
from fairwolfe.offpolicy.dsjson import is_dsjson, read_dsjson
from fairwolfe.offpolicy.reading import (
    assembled,
    csv_columns,
    json_lines,
    parquet_columns,
    read_rows,
    read_table,
)

__all__ = ["read_file"]


def read_file(
    path: str | os.PathLike[str], problem: Problem | None, **options: Any
) -> Choices | Rankings:
    """A log of an agent, an export of a service, or a table without a header of ours."""
    name = os.fspath(path)
    if not os.path.isfile(name):
        raise MissingData(f"there is no file {name}; give the path of a log")
    if os.path.getsize(name) == 0:
        raise InvalidInput(f"{name} is empty; give a log with at least one decision")
    if is_decisions(name):
        header, parts = read(name)
        return assembled(header.problem if problem is None else problem, parts, header, name)
    if name.endswith((".dsjson", ".json")) or is_dsjson(name):
        return read_dsjson(name, problem, **options)
    if options:
        raise InvalidInput(f"{', '.join(options)}: only for a path of dsjson, and {name} is not")
    if name.endswith((".jsonl", ".ndjson")):
        return read_rows([row for _, row in json_lines(name)], problem)
    with open(name, "rb") as file:
        parquet = file.read(4) == b"PAR1"
    return read_table(parquet_columns(name) if parquet else csv_columns(name), problem, name)
