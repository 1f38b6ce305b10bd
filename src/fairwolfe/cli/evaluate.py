"""`fairwolfe evaluate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from fairwolfe.cli import printing
from fairwolfe.errors import InvalidInput, MissingData, did_you_mean, require_extra

_WAYS = ("agent", "arm", "base", "file", "learn", "name")


_EXAMPLE = """\b
Example: fairwolfe evaluate log.parquet --policy policies.toml --objective minimum
with policies.toml:
  [policies.any]
  name = "uniform"
  [policies.second]
  name = "fixed"
  arm = 1     # by number, or by name where the log has names
  [policies.third]
  arm = 2     # the same in short
  [policies.learnt]
  learn = true
  [policies.new]
  base = { name = "squarecb", gamma0 = 100.0 }
"""


@click.command(epilog=_EXAMPLE)
@click.argument("log")
@click.option(
    "--policy",
    "spec",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML with [policies.NAME] tables.  [default: one that is learnt]",
)
@click.option(
    "--objective",
    metavar="NAME|TEXT",
    help="Such as minimum, or \"Linear({'clicks': 1.0}) + AtMost({'cost': 0.02})\".  "
    "[default: that of the log]",
)
@click.option("--estimator", help="ips, snips or dr; rankings: exposure, position, ips or snips.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of how the log is split.")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes for a folder.")
@click.option("--on", type=click.Choice(["ray"]), help="Work on a folder with Ray instead.")
@click.option("--share", type=float, help="Read this share of a folder's decisions, by their ids.")
@printing.out_option
@printing.as_json
def evaluate(
    log: str,
    spec: Path | None,
    objective: str | None,
    estimator: str | None,
    level: float,
    seed: int,
    jobs: int,
    on: str | None,
    share: float | None,
    out: Path,
    as_json: bool,
) -> None:
    """Say what other policies would have earned, from a log.

    LOG is what agent.log or `fairwolfe log export` wrote, a table (CSV, Parquet), Vowpal Wabbit's
    dsjson, or a folder or pattern of Parquet files, however large. The command prints a table and
    sentences, and writes evaluate.png, evaluate.svg and evaluate.json. A policy of the file may
    also be agent = "saved.fw", an agent that was saved, or file = "mixture.npz", what Mixture.save
    wrote. Where a policy learns, it learns from half of the log, and all policies are evaluated on
    the other half.
    """
    import json

    from fairwolfe.core.threads import ONE_THREAD

    if "numpy" not in sys.modules:  # which reads this when it is imported
        os.environ.update(ONE_THREAD)
    from fairwolfe.offpolicy import Log
    from fairwolfe.offpolicy.estimate import intervals
    from fairwolfe.offpolicy.folder import is_folder
    from fairwolfe.plots import save

    require_extra("lab", "fairwolfe evaluate", "matplotlib")
    data = Log.of(log, share=share)
    tables = _tables(spec)
    f = _objective(objective, tables, log)
    printing.make_folder(out)
    learns = any(table.get("learn") or "base" in table for table in tables["policies"].values())
    train, test = data.split(0.5, seed) if learns else (data, data)
    how: dict[str, Any] = {} if estimator is None else {"estimator": estimator}
    work: dict[str, Any] = {}
    estimates: dict[str, Any] = {}
    gains: dict[str, Any] = {}
    with printing.bars(
        dict.fromkeys(("check", "as logged", *tables["policies"]), len(test))
    ) as bar:
        if is_folder(log) and share is None and not learns:
            work = {"jobs": jobs, "on": on}
        elif jobs > 1 or on:
            raise InvalidInput(
                "--jobs and --on are for a folder, without --share and without policies that learn "
                "from it: those need the decisions in memory"
            )

        def shown(name: str) -> dict[str, Any]:
            return work | {"progress": lambda rows: bar(name, rows)} if work else {}

        checked = data.check(**shown("check"))
        estimates["as logged"] = test.evaluate("logged", f, level=level, **shown("as logged"))
        for name, table in tables["policies"].items():
            policy = _policy(name, table, train, f, spec)
            gains[name] = test.compare(policy, "logged", f, level=level, **how, **shown(name))
            estimates[name] = gains[name].first
    words_of_f = f.describe(test.problem)
    words = [*_sentences(estimates, gains, learns, len(test)), *checked.problems]
    rows = [_row(name, one) for name, one in estimates.items()]
    results = {
        "decisions": len(test),
        "objective": repr(f),
        "description": words_of_f,
        "usable": checked.usable,
        "policies": rows,
        "sentences": words,
    }
    files = [*save(intervals(estimates, words_of_f), out, "evaluate"), out / "evaluate.json"]
    files[-1].write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if as_json:
        printing.print_json(results | {"files": [str(file) for file in files]})
        return
    _print(estimates)
    printing.print_files(files, words)


def _print(estimates: dict[str, Any]) -> None:
    from fairwolfe.cli.printing import print_table

    labels = next(iter(estimates.values())).labels
    shown = labels if len(labels) <= 6 else labels[-3:]
    cells = []
    for name, one in estimates.items():
        averages = dict(zip(one.labels, one.average.tolist(), strict=True))
        numbers = (one.value, one.low, one.high)
        cells.append(
            [
                name,
                *(f"{x:.4f}" for x in numbers),
                f"{one.ess:,.0f}",
                *(f"{averages[label]:.4f}" for label in shown),
            ]
        )
    columns = ("policy", "f", "low", "high", "worth", *shown)
    print_table(columns, cells, numbers=len(columns) - 1)


def _tables(path: Path | None) -> dict[str, Any]:
    import tomllib

    if path is None:
        return {"policies": {"learnt": {"learn": True}}}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingData(f"there is no file {path}; give TOML with [policies.NAME]") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as TOML: {error}") from error
    for key in content:
        if key not in ("policies", "objective"):
            near = did_you_mean(key, ("policies", "objective"))
            raise InvalidInput(f"{path}: {key} is unknown; {near}")
    policies = content.get("policies")
    if not isinstance(policies, dict) or not policies:
        raise InvalidInput(f"{path} has no policies; give [policies.NAME] tables")
    for name, table in policies.items():
        keys = tuple(table) if isinstance(table, dict) else ()
        if len(keys) != 1 and set(keys) != {"name", "arm"}:
            raise InvalidInput(
                f"{path}: policies.{name} has {', '.join(keys) or 'no keys'}; give one of "
                f"{', '.join(_WAYS)}"
            )
        for key in keys:
            if key not in _WAYS:
                raise InvalidInput(
                    f"{path}: policies.{name}.{key} is unknown; {did_you_mean(key, _WAYS)}"
                )
        if "learn" in keys and table["learn"] is not True:
            raise InvalidInput(f"{path}: policies.{name}.learn is {table['learn']!r}; give true")
        if "name" in keys:
            _check_name(f"{path}: policies.{name}", table)
    return content


def _check_name(where: str, table: dict[str, Any]) -> None:
    known = {"uniform": {"name"}, "fixed": {"name", "arm"}}
    if table["name"] not in known:
        raise InvalidInput(
            f"{where}.name is {table['name']!r:.40}; give uniform or fixed, or a bandit as base, "
            "which learns from half of the log"
        )
    if set(table) != known[table["name"]]:
        more = "add arm, such as arm = 1" if table["name"] == "fixed" else "leave out arm"
        raise InvalidInput(f"{where}: name is {table['name']!r}; {more}")


def _objective(given: str | None, tables: dict[str, Any], log: str) -> Any:
    from fairwolfe.core.build import build_objective
    from fairwolfe.offpolicy.folder import header_at

    found: Any = given if given is not None else tables.get("objective")
    if found is None:
        header = header_at(log)
        found = header and header.objective
    if found is None:
        raise InvalidInput(f"{log} does not say what f is; give --objective, such as minimum")
    return build_objective(found, "objective")


def _policy(name: str, table: dict[str, Any], train: Any, f: Any, spec: Path | None) -> Any:
    from fairwolfe.agent import Agent
    from fairwolfe.bandits import Uniform
    from fairwolfe.core.build import build_policy
    from fairwolfe.offpolicy import Mixture, RankingMixture

    where, folder = f"policies.{name}", Path() if spec is None else spec.parent
    if "arm" in table:
        return table["arm"]
    if "file" in table:
        kind = Mixture if train.problem.kind == "arms" else RankingMixture
        return kind.load(folder / str(table["file"]))
    if "agent" in table:
        path = folder / str(table["agent"])
        if not path.is_file():
            raise MissingData(f"{where}.agent: there is no file {path}; give one of agent.save")
        return Agent.load(path)
    if table.get("learn"):
        return train.learnt(f)
    if "base" in table:
        base = table["base"]
        if train.problem.kind == "arms":
            base = {"name": "frank-wolfe", "base": base}
        policy = build_policy(base, f"{where}.base", objective=f)
        return train.agent(f, policy.base if train.problem.kind == "arms" else policy)
    return Uniform()


def _row(name: str, one: Any) -> dict[str, Any]:
    return {
        "policy": name,
        **printing.finite({"value": one.value, "low": one.low, "high": one.high, "ess": one.ess}),
        "average": dict(zip(one.labels, one.average.tolist(), strict=True)),
        "constraints": [str(level) for level in one.constraints],
        "warnings": list(one.warnings),
    }


def _sentences(estimates: dict[str, Any], gains: dict[str, Any], learns: bool, n: int) -> list[str]:
    base = estimates["as logged"]
    lines = [
        f"The logged policy earned an f of {base.value:.4g} ({base.low:.4g} to {base.high:.4g})."
    ]
    for name, gain in gains.items():
        sure = "better" if gain.low > 0 else "worse" if gain.high < 0 else "not certainly different"
        lines.append(
            f"{name} would have earned {gain.first.value:.4g}, {abs(gain.value):.3g} "
            f"{'more' if gain.value >= 0 else 'less'} ({gain.low:.3g} to {gain.high:.3g}): {sure}."
        )
        lines += [f"{name}: {level}." for level in gain.first.constraints]
        lines += [f"{name}: {text}." for text in gain.first.warnings]
    if learns:
        lines.append(f"All numbers are from the {n:,} decisions that were not used for learning.")
    return lines
