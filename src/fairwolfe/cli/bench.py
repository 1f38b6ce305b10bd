"""`fairwolfe bench`."""

from __future__ import annotations

import os
import sys

import click

from fairwolfe.cli.printing import as_json, print_json, print_rows, progress_bar

__all__ = ["bench"]


@click.command(epilog="Example: fairwolfe bench --seconds 10")
@click.option("--seconds", type=float, default=20.0, show_default=True, help="How long, about.")
@as_json
def bench(seconds: float, as_json: bool) -> None:
    """Time a round on this machine: compiled, with an Agent, in a NumPy loop.

    Arms and rankings in four sizes; a round is a decision and what is learnt from it. The sides
    play in turns on one thread, and the NumPy loop must first decide like the compiled run. Times
    are microseconds of processor time, medians over turns; the ratio, with its lowest and highest,
    is taken within a turn, because machines are noisy. The compiled run and the NumPy loop simulate
    a world and draw its contexts; the Agent is given them.
    """
    from fairwolfe.lab.local import ONE_THREAD

    if "numpy" not in sys.modules:  # which reads this when it is imported
        os.environ.update(ONE_THREAD)
    from fairwolfe.bench import speed

    bar = progress_bar()
    task = bar.add_task("preparing", total=seconds)

    def report(case: speed.Case, spent: float) -> None:
        doing = "timing" if spent > 0.0 else "preparing"
        bar.update(task, advance=spent, description=f"{doing} {case.name}, {case.size}")

    timings = speed.measure(speed.CASES, seconds, report)
    with bar:
        rows = [timing.row() for timing in timings]
    about = speed.about()
    if as_json:
        print_json({"about": about, "rows": rows})
        return
    print_rows(
        {
            "us a round": "{policy}, {size}",
            "compiled": "{compiled_us:,.1f}",
            "Agent": "{agent_us:,.0f}",
            "NumPy": "{numpy_us:,.0f}",
            "NumPy / compiled": "{numpy_over_compiled:.0f} ({lowest:.0f} - {highest:.0f})",
        },
        rows,
    )
    click.echo("\n" + ", ".join(f"{key} {value}" for key, value in about.items()))
