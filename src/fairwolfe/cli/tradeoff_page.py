"""The page of `fairwolfe tradeoff`: one file, nothing from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairwolfe.cli.tradeoff_world import TradeOffWorld, in_options
from fairwolfe.fairness import TradeOff
from fairwolfe.fairness.tradeoff import FAIR
from fairwolfe.lab.report import render
from fairwolfe.plots import COLOURS, THEME, Picture, new_figure

_GROUPS = 15  # of those that gain, and of those that lose


@dataclass(frozen=True)
class Content:
    """What a run of the command reports."""

    world: TradeOffWorld
    name: str
    command: str
    outcome: TradeOff
    chosen: float
    why: str
    """Where the chosen beta comes from."""
    status_quo: tuple[float, float] | None
    """Gini index and utility of today."""
    sentences: tuple[str, ...]
    groups: tuple[dict[str, Any], ...]


def html(content: Content) -> str:
    """The whole file."""
    outcome, rows = content.outcome, content.outcome.rows()
    played = [row for row in rows if row["beta"] in (0.0, *outcome.betas)]
    return render(
        "fairwolfe.cli",
        "tradeoff.html",
        content=content,
        objective=outcome.item_words,
        learner=FAIR,
        pictures=[_curve(content), _lorenz(content)],
        played=_best(content, "The best possible, and what was learnt.", played),
        all=_best(content, f"All {len(rows)} betas of the line", rows),
        groups=_groups(content),
        notes=list(map(in_options, content.world.notes)),
    )


def _curve(content: Content) -> Picture:
    outcome = content.outcome
    drawn = new_figure(4.6, 4.0)
    ax = outcome.plot(drawn.add_subplot())
    row = next(row for row in outcome.rows() if row["beta"] == content.chosen)
    label = f"beta = {content.chosen:.3g}, {content.why}"
    ax.plot(
        [row["gini"]], [row["utility"]], "*", color=COLOURS[1], markersize=13, label=label, zorder=5
    )
    if content.status_quo is not None:
        gini, utility = content.status_quo
        ax.plot([gini], [utility], "X", color=COLOURS[4], markersize=9, label="today", zorder=5)
    ax.legend(frameon=False, loc="lower left", fontsize=8)
    rows = outcome.rows()
    alt = "; ".join(f"Gini index {r['gini']:.2f}: {r['utility']:.3g}" for r in rows)
    caption = (
        f"{outcome.reward.capitalize()} a ranking against the inequality of exposure, fairer to "
        f"the right. The line is the best possible, certified; the points are what {FAIR} has "
        "learnt to reach, with its betas beside them."
    )
    return Picture("curve", caption, f"The best possible {outcome.reward}: {alt}.", drawn, THEME)


def _lorenz(content: Content) -> Picture:
    outcome = content.outcome
    drawn = new_figure(4.6, 4.0)
    outcome.plot_lorenz(drawn.add_subplot(), content.chosen)
    rows = [row for row in outcome.table() if row["policy"] == FAIR]
    alt = "; ".join(f"beta {r['beta']:.3g}: {100 * r['bottom_half']:.0f} %" for r in rows)
    caption = (
        "Who is exposed: the share of all exposure that the least exposed items have. The nearer "
        "to the straight line, the more equal."
    )
    words = f"Share of the least exposed half of the items: {alt}."
    return Picture("lorenz", caption, words, drawn, THEME)


Table = tuple[str, list[str], list[list[str]]]
"""Caption, head and rows."""


def _best(content: Content, caption: str, rows: list[dict[str, Any]]) -> Table:
    outcome = content.outcome
    learnt = {row["beta"]: row for row in outcome.table() if row["policy"] == FAIR}
    most = outcome.rows()[0]["utility"]
    digits = 3 if abs(most) < 10.0 else 1
    head = ["beta", outcome.reward, "cost", "Gini index", "least exposed half", "top tenth"]
    head += [f"{outcome.reward}, learnt", "Gini index, learnt"]
    cells = []
    for row in rows:
        mine = learnt.get(row["beta"])
        mark = f" ({content.why})" if row["beta"] == content.chosen else ""
        cells.append(
            [
                f"{row['beta']:.3g}{mark}",
                f"{row['utility']:.{digits}f}",
                f"{100 * (1 - row['utility'] / most):.1f} %" if most else "",
                f"{row['gini']:.3f}",
                f"{100 * row['bottom_half']:.0f} %",
                f"{100 * row['top_decile']:.0f} %",
                "" if mine is None else f"{mine['utility']:.{digits}f}",
                "" if mine is None else f"{mine['gini']:.3f}",
            ]
        )
    return caption, head, cells


def _groups(content: Content) -> Table | None:
    if not content.groups:
        return None
    plain = {row["group"]: row for row in content.groups if row["beta"] == 0.0}
    rows = [row for row in content.groups if row["beta"] == content.chosen]
    rows.sort(key=lambda row: plain[row["group"]]["exposure"] - row["exposure"])
    shown = rows if len(rows) <= 2 * _GROUPS else [*rows[:_GROUPS], *rows[-_GROUPS:]]
    head = ["group", "items", "share of plays", "exposure at beta = 0"]
    head += [f"at beta = {content.chosen:.3g}", "change", f"change of {content.outcome.reward}"]
    cells = [
        [
            str(row["group"]),
            str(row["items"]),
            f"{100 * content.world.plays.get(row['group'], np.nan):.1f} %",
            f"{100 * plain[row['group']]['exposure_share']:.1f} %",
            f"{100 * row['exposure_share']:.1f} %",
            _percent(row["exposure_change_percent"]),
            _percent(row["utility_change_percent"]),
        ]
        for row in shown
    ]
    left = len(rows) - len(shown)
    more = f" {left} between them are in groups.csv." if left else ""
    return f"Shares of all exposure, who gains most first.{more}", head, cells


def _percent(change: float | None) -> str:
    if change is None:
        return "had none"
    if abs(change) < 0.5:
        return "0 %"
    return f"{change:+,.0f} %" if abs(change) < 1000 else f"x {1 + change / 100:,.0f}"
