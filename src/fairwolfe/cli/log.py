"""`fairwolfe log`: what a service has written, examined, replayed, copied and exported."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairwolfe.cli.printing import as_json, bars, finite, print_json
from fairwolfe.errors import (
    IncompatibleState,
    InvalidInput,
    Unavailable,
    did_you_mean,
    require_extra,
)

if TYPE_CHECKING:
    from fairwolfe.service.export import PrunePlan
    from fairwolfe.service.log_file import ReadLog
    from fairwolfe.service.model import Model

_STEP = 256  # rows between two updates of the bar
_PACE = 1.0  # seconds between two looks of a copy that follows
_LISTED = 20  # sentences; --json has all of them
_SUFFIXES = (".parquet", ".pq", ".jsonl", ".ndjson")

_place = click.argument("place", metavar="STATE", type=click.Path(path_type=Path))
_model = click.option("--model", "name", metavar="NAME", help="Only this model.")


@click.group(epilog="Example: fairwolfe log verify config.toml --fold")
def log() -> None:
    """Examine, replay, copy and export the log of a service.

    STATE is the configuration of a service, its state folder, or a backup. The service may run:
    then the log is read as it is when the command begins. Only `restore` and `--prune` need it
    ended.
    """
    require_extra("serve", "a log", "apsw")


@log.command(epilog="Example: fairwolfe log verify config.toml --fold")
@_place
@click.option("--fold", is_flag=True, help="Also replay all of it and compare the snapshots.")
@as_json
@click.pass_context
def verify(ctx: click.Context, place: Path, fold: bool, as_json: bool) -> None:
    """Examine a log: check sums, numbers, events, snapshots.

    Nothing is changed. Exit code 1 where anything is wrong, with a sentence for each.
    """
    from fairwolfe.service.log_file import Verified, open_log, verify

    where: object = place
    try:
        opened = open_log(place)
        where = opened.path
    except IncompatibleState as error:
        report = Verified(0, 0, 0, 0, 0, False, [str(error)], [])
    else:
        with closing(opened), _rows(opened.row_count * (2 if fold else 1)) as tick:
            report = verify(opened, fold, tick)
    if as_json:
        print_json({"file": str(where), **report._asdict()})
        ctx.exit(1 if report.wrong else 0)
    click.echo(
        f"{where}: {report.rows:,} rows, {report.events:,} events, {report.decisions:,} "
        f"decisions, {report.snapshots} snapshots"
    )
    if report.deleted:
        click.echo(
            f"Rows up to {report.deleted:,} were deleted after an export, except those that are "
            "still needed: a replay begins from the snapshots kept for that."
        )
    _print_wrong([*report.wrong, *report.notes])
    if not report.wrong:
        bits = "except for rounding" if report.notes else "bit for bit"
        more = f", and the snapshots are the fold of the rows, {bits}" if fold else ""
        click.echo(f"Nothing is wrong: every row is whole and in its place{more}.")
    ctx.exit(1 if report.wrong else 0)


@log.command(epilog="Example: fairwolfe log replay config.toml --until 1000 --decisions")
@_place
@click.option("--until", type=int, metavar="SEQ", help="Only the rows up to this one.")
@_model
@click.option(
    "--decisions",
    is_flag=True,
    help="Make every decision again and compare; needs `audit = true` in the configuration.",
)
@as_json
@click.pass_context
def replay(
    ctx: click.Context,
    place: Path,
    until: int | None,
    name: str | None,
    decisions: bool,
    as_json: bool,
) -> None:
    """Fold a log from its start, and print what the models have learnt.

    The digest is that of the whole state: equal digests are equal bits. Exit code 1 where a row
    cannot be applied, or a decision differs from the log.
    """
    from fairwolfe.service.events import DecisionsMade, Event
    from fairwolfe.service.log_file import open_log, remade
    from fairwolfe.service.recovery import replay

    opened = open_log(place)
    counts: dict[int, int] = {}
    wrong: list[str] = []

    def before(seq: int, events: list[Event], models: dict[int, Model]) -> None:
        tick(1)
        for event in events if decisions else ():
            if isinstance(event, DecisionsMade) and name in (None, models[event.model].name):
                again = remade(models[event.model], event, seq)
                counts[event.model] = counts.get(event.model, 0) + again.decisions
                wrong.extend(again.wrong)

    with closing(opened):
        last = opened.last()[0]
        if until is not None and not 1 <= until <= last:
            raise InvalidInput(f"--until is {until}; the log has the rows 1 to {last}")
        with _rows(opened.row_count) as tick:
            whole = replay(opened, until, before)
    models = _chosen(whole.models, name)
    wrong += [model.stopped for model in models if model.stopped]
    rows = [_summary(model) for model in models]
    if decisions:
        for row, model in zip(rows, models, strict=True):
            row["remade"] = counts.get(model.number, 0)
    if as_json:
        print_json({"rows": until or last, "models": rows, "wrong": wrong})
        ctx.exit(1 if wrong else 0)
    click.echo(f"rows up to {until or last:,}, {whole.records:,} records")
    for row in rows:
        average = ", ".join(f"{reward} {value!r}" for reward, value in row["average"].items())
        click.echo(
            f"{row['model']}: t {row['t']:,}, f {row['value']!r}, on average {average}; "
            f"{row['decisions']:,} decisions, {row['open']:,} open\n  digest {row['digest']}"
        )
        if decisions:
            click.echo(f"  {_remade(row['remade'], row['decisions'])}")
    _print_wrong(wrong)
    ctx.exit(1 if wrong else 0)


@log.command(
    epilog="Example: fairwolfe log backup config.toml copy.sqlite, or fairwolfe log backup --from "
    "http://127.0.0.1:8710 copy.sqlite"
)
@click.argument("paths", metavar="[STATE] FILE", nargs=-1, type=click.Path(path_type=Path))
@click.option("--from", "address", metavar="URL", help="Of a service that runs, instead of STATE.")
@click.option(
    "--key",
    envvar="FAIRWOLFE_KEY",
    show_envvar=True,
    help="With the scope admin, where the service has keys.",
)
@click.option(
    "--follow", is_flag=True, help="Go on: bring FILE up to date once a second, until Ctrl-C."
)
@as_json
def backup(
    paths: tuple[Path, ...], address: str | None, key: str | None, follow: bool, as_json: bool
) -> None:
    """Copy a log to a file.

    The copy is whole or not made at all; `fairwolfe log restore` is the way back.
    """
    from fairwolfe.service.log_file import copy, download, place_of

    if len(paths) != (1 if address else 2):
        raise InvalidInput(
            "give the configuration or the state folder and the file to write, or --from ADDRESS "
            "and the file"
        )
    target = paths[-1]
    if follow:
        if address:
            raise InvalidInput("--follow reads the log itself; run it beside the service")
        _follow(place_of(paths[0]), target)
        return
    if target.exists():
        raise InvalidInput(f"{target} is there already; give another name, or remove it")
    if address:
        done = download(address, key, target)
    else:
        place = place_of(paths[0])
        with _rows(place.stat().st_size) as tick:
            done = copy(place, target, tick)
    if as_json:
        print_json({"file": str(done.path), "rows": done.rows, "bytes": done.bytes})
        return
    click.echo(f"{done.path}: {done.rows:,} rows, {done.bytes:,} bytes")


@log.command(epilog="Example: fairwolfe log restore copy.sqlite config.toml")
@click.argument("backup", type=click.Path(path_type=Path))
@_place
@as_json
def restore(backup: Path, place: Path, as_json: bool) -> None:
    """Make a backup the log of a service that does not run.

    The log that was there is kept in the state folder, under replaced-TIME. Decisions made after
    the backup are unknown from then on, and so is feedback for them.
    """
    from fairwolfe.service.log_file import folder_of, restore

    if not backup.is_file():
        raise InvalidInput(f"{backup} is not a file; give a backup of a log")
    with _rows(backup.stat().st_size) as tick:
        done = restore(backup, folder_of(place), tick)
    if as_json:
        print_json({"state": str(done.path.parent), "rows": done.rows, "bytes": done.bytes})
        return
    click.echo(f"{done.path.parent}: {done.rows:,} rows were restored; start the service")


@log.command(epilog="Example: fairwolfe log export config.toml decisions.parquet --model front")
@_place
@click.argument("out", type=click.Path(path_type=Path))
@_model
@click.option(
    "--prune",
    is_flag=True,
    help="Afterwards delete what was exported and is not needed any more: rows below the older "
    "snapshot.",
)
@as_json
def export(place: Path, out: Path, name: str | None, prune: bool, as_json: bool) -> None:
    """Write closed decisions with their outcomes as a table.

    `fairwolfe evaluate` reads it.

    OUT is a file (.parquet or .jsonl) for one model, or a folder for a file of each. With --prune
    files hold exactly what was not exported with --prune before: each decision is in one of them.
    """
    from fairwolfe.service.export import export, plan
    from fairwolfe.service.log_file import open_log, place_of
    from fairwolfe.service.recovery import recover
    from fairwolfe.service.store import SQLiteStore

    if prune:
        where = place_of(place)
        if out.is_dir() and any(out.iterdir()):
            raise InvalidInput(f"{out} is not empty; give a new folder to each --prune")
        _make_ready(where, name)
    opened = open_log(place)
    with closing(opened):
        models = _chosen(recover(opened).models, name)
        files = _files(models, out)
        planned = plan(opened) if isinstance(opened, SQLiteStore) and prune else None
        counts = {}
        with _rows(opened.row_count * len(files)) as tick:
            for model, path in files.items():
                upto = None
                if planned is not None:
                    base = planned.bases.get(model.number)
                    upto = 0 if base is None else base.first
                counts[model.name] = export(opened, model, path, upto, tick)
        unkept = [model.name for model in models if not (model.ranks or _keeps(opened, model))]
    deleted = 0 if planned is None else _prune(where, planned)
    if as_json:
        rows = [
            {"model": model.name, "file": str(path), "decisions": counts[model.name]}
            for model, path in files.items()
        ]
        print_json({"files": rows, "rows_deleted": deleted})
        return
    for model, path in files.items():
        click.echo(f"{path}: {counts[model.name]:,} decisions of {model.name}")
    for one in unkept:
        click.echo(
            f"The contexts of {one} are not in the log; `audit = true` in its configuration keeps "
            "those of later decisions."
        )
    if planned is not None:
        click.echo(
            f"{deleted:,} rows were deleted; the log begins from the snapshots at row "
            f"{planned.upto:,}."
            if deleted
            else f"Nothing was deleted: {planned.holding} has no older snapshot above row "
            f"{planned.upto:,}. Snapshots are kept while the service runs."
        )


@log.command(epilog="Example: fairwolfe log copy config.toml in-postgresql.toml")
@_place
@click.argument("target", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@as_json
def copy(place: Path, target: Path, as_json: bool) -> None:
    """Copy a log from a folder to PostgreSQL, or back.

    CONFIG.toml is the other configuration. Rows and ids are the same. End the service first, and
    serve only one of the two from then on.
    """
    from fairwolfe.service.config import read
    from fairwolfe.service.copy_log import copy_log

    with _rows(0) as tick:
        rows = copy_log(place, target, tick)
    where = read(target).log
    if as_json:
        print_json({"state": where, "rows": rows})
        return
    click.echo(f"{where}: {rows:,} rows")


@log.command(
    epilog='Example: fairwolfe log relearn config.toml new.fw --policy "FrankWolfe(Minimum(), '
    'SquareCB(gamma0=100.0))", and then start = "new.fw" in a new [models.NAME]'
)
@click.argument("source", metavar="STATE|FOLDER")
@click.argument("out", type=click.Path(path_type=Path))
@_model
@click.option(
    "--policy",
    metavar="TEXT",
    help="What learns, as Python writes it.  [default: what the model has now]",
)
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes.")
@click.option("--on", type=click.Choice(["ray"]), help="Work with Ray instead.")
@as_json
def relearn(
    source: str,
    out: Path,
    name: str | None,
    policy: str | None,
    jobs: int,
    on: str | None,
    as_json: bool,
) -> None:
    """Learn the whole log of a model again, with any policy.

    Its state is the one that it would have after all closed decisions, up to rounding, also for
    another policy or objective. FOLDER holds Parquet files, such as those of `fairwolfe log
    export`, with other features or more rewards than the service has if you put them there. A
    new model of the service begins with the agent by start = "OUT".
    """
    from tempfile import TemporaryDirectory

    from fairwolfe.core.build import from_text
    from fairwolfe.offpolicy import Log
    from fairwolfe.offpolicy.folder import header_at, is_folder
    from fairwolfe.service.log_file import LogFile, place_of
    from fairwolfe.service.recovery import recover
    from fairwolfe.service.relearn import write_learnt
    from fairwolfe.service.store import FILE

    if out.exists():
        raise InvalidInput(f"{out} is there already; give another name, or remove it")
    with TemporaryDirectory(dir=out.absolute().parent, prefix=".relearn-") as folder:
        options: dict[str, Any] = {}
        gone: list[str] = []
        if source.endswith(".parquet") or (
            is_folder(source) and not (Path(source) / FILE).exists()
        ):
            if name is not None:
                raise InvalidInput("--model is for the log of a service; leave it out for a folder")
            place = source
        else:
            opened = LogFile(place_of(Path(source)))
            with closing(opened), _rows(opened.row_count) as tick:
                models = _chosen(recover(opened).models, name)
                if len(models) > 1:
                    known = ", ".join(model.name for model in models)
                    raise InvalidInput(f"the log has the models {known}; choose one with --model")
                options, gone = write_learnt(opened, models[0], Path(folder) / "log.parquet", tick)
            place = folder
        header = header_at(place)
        given = policy or (None if header is None else header.policy)
        if given is None:
            raise InvalidInput(f"{source} does not say which policy it is of; give --policy")
        learner = from_text(given)
        data = Log.of(place if is_folder(place) else f"{place}*")
        with _rows(len(data)) as tick:
            agent = data.relearn(learner, jobs=jobs, on=on, progress=tick, **options)
    if gone:
        agent.retire(gone)
    agent.save(out)
    if as_json:
        print_json({"file": str(out), "decisions": agent.t, "value": finite(agent.value)})
        return
    click.echo(
        f"{out}: {agent.policy!r} has learnt {agent.t:,} decisions, f {agent.value:.6g}; a new "
        f'model of the service begins with it by start = "{out}"'
    )


# --- parts of the commands ---------------------------------------------------------------------


def _follow(place: Path, target: Path) -> None:
    """Keep a copy up to date until the end, and say so whenever it has come to."""
    from fairwolfe.service.log_file import follow

    behind = True
    while True:
        try:
            rows = follow(place, target)
        except Unavailable as error:
            click.echo(f"{error}; trying again", err=True)
            behind = True
        else:
            if behind:
                click.echo(f"{target} has the rows up to {rows:,}, and follows")
            behind = False
        time.sleep(_PACE)


@contextmanager
def _rows(total: int) -> Iterator[Callable[[int], None]]:
    """Progress over rows or bytes."""
    with bars({"log": max(total, 1)}) as tick:
        waiting = 0

        def count(done: int) -> None:
            nonlocal waiting
            waiting += done
            if waiting >= _STEP:
                tick("log", waiting)
                waiting = 0

        yield count


def _print_wrong(wrong: list[str]) -> None:
    for sentence in wrong[:_LISTED]:
        click.echo(f"- {sentence}.")
    if len(wrong) > _LISTED:
        click.echo(f"- and {len(wrong) - _LISTED:,} more; --json has all of them.")


def _chosen(models: dict[int, Model], name: str | None) -> list[Model]:
    matches = [model for model in models.values() if name in (None, model.name)]
    if not matches:
        known = [model.name for model in models.values()]
        raise InvalidInput(f"the log has no model {name!r:.80}; {did_you_mean(name or '', known)}")
    return matches


def _summary(model: Model) -> dict[str, Any]:
    return {
        "model": model.name,
        "t": model.t,
        "value": model.value,
        "average": model.average(),
        "decisions": model.decisions,
        "open": model.ring.open,
        **model.counts,
        "digest": model.digest(),
    }


def _remade(count: int, decisions: int) -> str:
    if count == decisions:
        return f"all {count:,} decisions were made again"
    return (
        f"{count:,} of {decisions:,} decisions were made again; the others were deleted after an "
        "export, or the log does not say what was asked (`audit = true` keeps that)"
    )


def _files(models: list[Model], out: Path) -> dict[Model, Path]:
    """A file for each model."""
    if out.suffix in _SUFFIXES:
        if len(models) > 1:
            known = ", ".join(model.name for model in models)
            raise InvalidInput(
                f"{out} is one file, and the log has the models {known}; choose one with --model, "
                "or give a folder"
            )
        files = {models[0]: out}
    else:
        out.mkdir(parents=True, exist_ok=True)
        files = {model: out / f"{model.name}.parquet" for model in models if model.agent}
    for path in files.values():
        if path.exists():
            raise InvalidInput(f"{path} is there already; give another name, or remove it")
    return files


def _keeps(opened: ReadLog, model: Model) -> bool:
    """Whether the log has the context of the last decision of a model."""
    from fairwolfe.service.events import DecisionsMade, decode

    row = opened.row_of(model.number, model.decisions - 1)
    events = [] if row is None else decode(row[1].payload)
    decisions = [e for e in events if isinstance(e, DecisionsMade) and e.model == model.number]
    return not decisions or bool(decisions[0].inputs)


def _make_ready(where: Path, name: str | None) -> None:
    """Before rows are deleted: the log is whole, and every model has a snapshot of its end."""
    from fairwolfe.service.export import keep_snapshots
    from fairwolfe.service.log_file import LogFile, verify
    from fairwolfe.service.store import FILE, SQLiteStore

    if where.name != FILE:
        raise InvalidInput(f"{where} is a backup; --prune is for the log of a service")
    opened = LogFile(where)
    with closing(opened):
        if opened.served:
            raise InvalidInput(f"{where.parent} is in use by a server; end it before you prune")
        if name is not None and len(opened.starts()) > 1:
            raise InvalidInput(
                "--prune deletes rows, which hold the decisions of all models; leave out --model "
                "and give a folder"
            )
        with _rows(2 * opened.row_count) as tick:
            wrong = verify(opened, True, tick).wrong
    if wrong:
        raise IncompatibleState(
            f"nothing was exported or deleted, since the log is not whole: {wrong[0]}"
        )
    store = SQLiteStore(where.parent)
    with closing(store):
        keep_snapshots(store)


def _prune(where: Path, planned: PrunePlan) -> int:
    from fairwolfe.service.export import prune
    from fairwolfe.service.store import SQLiteStore

    store = SQLiteStore(where.parent)
    with closing(store):
        return prune(store, planned) if planned.upto > store.deleted else 0
