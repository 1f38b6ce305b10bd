"""What the page says of a frame, in words and as HTML: what is shown, how good it is, whether the
limits are kept. The page is made of these parts, and the stream sends those of every frame.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

_NONE = "–"
_MOST_TILES = 4
_TOLD = 0.8  # of the best, for sure: below it a share of it would promise too much
_SCALES = {1: 1.0, 100: 0.1, 10_000: 0.1}  # visits that a price is told for -> least of a reward
_LINE = 0.02  # of a level: what is nearer is on it, as f draws averages to a limit that costs
_REASONS = {  # why there is no guarantee -> what to do about it
    "parameter_norm": "tell us how large effects can be (<code>parameter_norm</code>)",
    "no confidence widths": "this policy keeps no error bars of what it has learnt",
    "with a memory": "old visits are forgotten on purpose, and a guarantee needs all of them",
    "computed by differences": "the objective is known by its values alone",
    "too few decisions": "too few visits have feedback so far",
    "outside the ranges": "rewards were outside the ranges that the configuration states",
    "have no answer yet": "too many visits still wait for feedback",
    "the ranges of the rewards alone": "it would say no more than the ranges of the rewards do",
    "no policy keeps": "the limits cannot all be kept",
}
_LIGHTS = {  # state -> colour, words
    "kept": ("good", "Kept"),
    "line": ("good", "On the line"),
    "unclear": ("soso", "Not clear yet"),
    "vanishing": ("soso", "Kept for a bad reason"),
    "missed": ("bad", "Missed"),
    "impossible": ("bad", "Cannot be kept"),
    "unknown": ("none", "Not known yet"),
}
_BANNERS = {  # state -> head, words
    "stopped": (
        "Stopped",
        "{why} It decides nothing and learns nothing until the service is started again. What was "
        "recorded is safe.",
    ),
    "bare": (
        "No items yet",
        "{needs} more are needed before the first visit: <code>POST /v1/models/{model}/items</code>"
        ", or <code>client.add_items</code>.",
    ),
    "empty": (
        "Ready for the first visit",
        "Nothing was asked yet. Ask for a decision: <code>POST /v1/models/{model}/decide</code>, "
        'as the <a href="docs#g-decisions">interface</a> shows.',
    ),
    "waiting": (
        "Waiting for the first feedback",
        "{visits} so far, and nothing came back yet. Learning begins with the first feedback, or "
        "when the first window ends.",
    ),
    "infeasible": (
        "The limits cannot all be kept",
        "By what was learnt so far, nothing that could be shown keeps all of them together. The "
        "service comes as near as it can. Loosen one of them.",
    ),
    "young": (
        "Just begun",
        "{learnt} with feedback so far. How good this is can be told after some more; expect "
        "changes until then.",
    ),
}

Row = Sequence[str]
Frame = dict[str, Any]


def parts_of_page(frame: Frame) -> dict[str, str]:
    """The parts that change, by the id of their place."""
    exposure = frame.get("exposure")
    return {
        "banner": _banner(frame),
        "objective": html.escape(frame["description"]),
        "version": _changed(frame["version"]),
        "doing": _doing(frame),
        "good": _good(frame),
        "limits": _limits(frame),
        "proof": _proof(frame),
        "shares": "" if exposure is None else _shares(exposure, frame.get("earlier")),
    }


def _changed(version: int) -> str:
    if not version:
        return "unchanged since it began"
    times = "once" if version == 1 else f"{version:,} times"
    return f'changed <a href="#audit">{times}</a>'


# --- numbers as text ---------------------------------------------------------------------------


def number(x: float | None) -> str:
    """A number with three significant digits, or with all before the point; a dash for none.

    >>> number(1234.56), number(0.2), number(12), number(1.2449), number(None)
    ('1,235', '0.2', '12', '1.24', '–')
    """
    if x is None or not math.isfinite(x):
        return _NONE
    shown = float(f"{x:.3g}") if abs(x) < 1000.0 else round(x)
    if float(shown).is_integer():
        return f"{int(shown):,}"
    if abs(shown) < 1e-6:
        return f"{shown:g}"
    return f"{shown:.10f}".rstrip("0")


def percent(share: float | None) -> str:
    """A share in percent; between 99 % and 100 % as far from 100 % as it is.

    >>> percent(0.354), percent(0.9952), percent(1.0), percent(0.0004)
    ('35 %', '99.5 %', '100 %', '0.04 %')
    """
    if share is None:
        return _NONE
    x = 100.0 * share
    text = f"{x:.1f}" if 99.0 <= x < 99.95 else f"{x:.0f}" if abs(x) >= 10.0 else f"{x:.2g}"
    return f"{number(float(text))} %"


def _whole(share: float | None) -> str:
    """A share in percent that no line breaks."""
    return percent(share).replace(" ", "&nbsp;")


def ago(seconds: float) -> str:
    """How long, in a word and a half.

    >>> ago(40), ago(86400), ago(5400)
    ('40 s', '24 h', '90 min')
    """
    for size, unit in ((172_800, "days"), (7200, "h"), (120, "min")):
        if seconds >= size:
            return f"{number(round(seconds / {'days': 86400, 'h': 3600, 'min': 60}[unit]))} {unit}"
    return f"{seconds:.0f} s"


def _visits(n: int) -> str:
    return f"{n:,} visit{'' if n == 1 else 's'}"


def table(id: str, caption: str, head: Row, rows: Iterable[Row], words: Sequence[int] = ()) -> str:
    """A table whose first cells are the heads of the rows; words: columns that hold no numbers."""
    look = dict.fromkeys(words, ' class="words"')
    heads = "".join(
        f'<th scope="col"{look.get(i, "")}>{html.escape(name)}</th>' for i, name in enumerate(head)
    )
    lines = []
    for row in rows:
        cells = "".join(
            f"<td{look.get(i, '')}>{html.escape(cell)}</td>" for i, cell in enumerate(row[1:], 1)
        )
        lines.append(f'<tr><th scope="row">{html.escape(row[0])}</th>{cells}</tr>')
    return (
        f'<table id="t-{id}"><caption>{html.escape(caption)}</caption><thead><tr>{heads}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table>"
    )


# --- in what state it is -----------------------------------------------------------------------


def state_of(frame: Frame) -> str:
    """stopped, empty, waiting, infeasible, young, or running."""
    live = frame["live"]
    if frame["stopped"]:
        return "stopped"
    if not frame["decisions"]:
        return "empty"
    if not frame["begun"]:
        return "waiting"
    hopeless = any(one["feasible"] is False for one in frame["constraints"])
    if hopeless or "no policy keeps" in live.get("reason", ""):
        return "infeasible"
    return "young" if live.get("about") is None else "running"


def _banner(frame: Frame) -> str:
    """What the owner should know first; empty where all is well."""
    state, name = state_of(frame), html.escape(frame["model"])
    if state == "empty" and frame["needs"]:
        state = "bare"
    if state not in _BANNERS:
        return ""
    head, text = _BANNERS[state]
    text = text.format(
        model=name,
        why=html.escape(str(frame["stopped"])),
        needs=frame["needs"],
        visits=_visits(frame["decisions"]),
        learnt=_visits(frame["t"]),
    )
    look = "bad" if state in ("stopped", "infeasible") else "calm"
    return f'<div class="banner {look}" data-state="{state}"><strong>{head}.</strong> {text}</div>'


# --- what is it doing? -------------------------------------------------------------------------


def _doing(frame: Frame) -> str:
    doing, exposure = frame["doing"], frame.get("exposure")
    if not doing["visits"]:
        return '<p class="lead">Nothing was shown yet.</p>'
    verb = "shown" if exposure is not None else "chosen"
    name, now, _ = doing["most"][0] if doing["most"] else ("", None, None)
    lead = f"<b>{html.escape(name)}</b> is {verb} most: in {_whole(now)} of visits."
    if now is None:
        lead = f"No visits for {ago(doing['seconds'])}."
    heads = (f"last {ago(doing['seconds'])}", "before")
    if doing["before"]:
        heads = (heads[0], f"{ago(doing['before'])} before")
    blocks = [("", doing["most"])]
    if exposure is not None:
        blocks = [("Most shown", doing["most"]), ("Least shown", doing["least"])]
        blocks.append(("Groups, of all places", doing["groups"]))
    more = doing["kinds"] > len(doing["most"]) + len(doing["least"])
    choice = f" {doing['kinds']:,} can be {verb}." if more else ""
    text = f"{_visits(doing['visits'])} so far{_rate(doing['rate'])}.{choice}"
    return (
        f'<p class="lead">{lead}</p><p class="soft">{text}</p>{_shown(heads, blocks)}'
        f"{_feedback(frame)}"
    )


def _rate(rate: float | None) -> str:
    """Visits a second, a minute, an hour or a day: what is at least 1."""
    if not rate:
        return ""
    for unit, seconds in (("second", 1.0), ("minute", 60.0), ("hour", 3600.0)):
        if rate * seconds >= 1.0:
            return f", {number(float(f'{rate * seconds:.2g}'))} a {unit} now"
    return f", {number(rate * 86400.0)} a day now"


def _shown(heads: Row, blocks: Sequence[tuple[str, Sequence[Any]]]) -> str:
    """Shares as bars, with a mark for the time before."""
    bodies = []
    shares = [share or 0.0 for _, rows in blocks for _, *both in rows for share in both]
    most = max(shares, default=0.0) or 1.0
    for title, rows in blocks:
        lines = [f'<tr><th scope="rowgroup" colspan="4">{title}</th></tr>'] if title else []
        for name, now, before in rows:
            bar = f'<rect width="{100.0 * (now or 0.0) / most:.1f}%" height="100%"/>'
            if before is not None:
                x = f"{min(max(100.0 * before / most, 0.6), 99.4):.1f}%"
                bar += f'<line x1="{x}" x2="{x}" y1="0" y2="100%"/>'
            lines.append(
                f'<tr><th scope="row">{html.escape(name)}</th>'
                f'<td class="bar"><svg aria-hidden="true">{bar}</svg></td>'
                f"<td>{percent(now)}</td><td>{percent(before)}</td></tr>"
            )
        bodies += [f"<tbody>{''.join(lines)}</tbody>"] if rows else []
    return (
        f'<table id="t-shown" class="shown"><thead><tr><td></td><td></td><th scope="col">{heads[0]}'
        f'</th><th scope="col">{heads[1]}</th></tr></thead>{"".join(bodies)}</table>'
    )


_FEEDBACK = {
    "joined": "answered",
    "expired": "no feedback in time",
    "open": "waiting for feedback",
}


def _feedback(frame: Frame) -> str:
    """What became of the visits: a bar for each stage of feedback."""
    stages = frame.get("stages") or [{"rewards": [], **frame}]
    lines = []
    for stage in stages:
        total = sum(stage[name] for name in _FEEDBACK) or 1
        rects, words, at = [], [], 0.0
        for name, text in _FEEDBACK.items():
            wide = 100.0 * stage[name] / total
            rects.append(f'<rect class="{name}" x="{at:.2f}%" width="{wide:.2f}%" height="100%"/>')
            words.append(f'<li class="{name}"><b>{stage[name]:,}</b> {text}</li>')
            at += wide
        head = html.escape(", ".join(stage["rewards"]))
        lines.append(
            (f'<p class="soft">{head}</p>' if head else "")
            + f'<svg class="split" aria-hidden="true">{"".join(rects)}</svg>'
            f'<ul class="key">{"".join(words)}</ul>'
        )
    late = frame["late"]
    lines += [f'<p class="soft">{late:,} came too late to count.</p>'] if late else []
    return f'<h3>Feedback</h3><div id="feedback">{"".join(lines)}</div>'


# --- is it good? -------------------------------------------------------------------------------


def reach_of(frame: Frame) -> tuple[float, float, float] | None:
    """f as a share of the best that can be reached, with an interval; None where that means
    nothing: no estimate yet, or numbers that are not positive.
    """
    live, value = frame["live"], frame["value"]
    best = [live.get(name) for name in ("about", "low", "high")]
    if value is None or None in best or not (value > 0.0 and min(best) > 0.0):
        return None
    about, low, high = (min(value / one, 1.0) for one in best)
    return about, high, low


def _good(frame: Frame) -> str:
    if not frame["begun"]:
        return '<p class="lead">Nothing was learnt yet.</p>'
    limited = {one["reward"] for one in frame["limits"]}
    names = [name for name in frame["average"] if name not in limited]
    tiles = [(number(frame["average"][name]), f"{name} a visit", "") for name in names]
    tiles = tiles[:_MOST_TILES] + _fairness(frame)
    lead, reached = _reached(frame)
    cells = "".join(
        f"<li><b>{value}</b> <span>{html.escape(text)}</span>"
        + (f" <small>{html.escape(note)}</small>" if note else "")
        + "</li>"
        for value, text, note in reached + tiles
    )
    first = f'<p class="lead">{lead}</p>' if lead else ""
    big = " first" if reached else ""
    charts = "".join(map(_chart, names))
    return f'{first}<ul class="tiles{big}">{cells}</ul><div class="charts">{charts}</div>'


def _fairness(frame: Frame) -> list[tuple[str, str, str]]:
    """How the least shown fare: the last of the groups, if there are any, or half of the items."""
    exposure = frame.get("exposure")
    if exposure is None or exposure["least_half"] is None:
        return []
    groups = exposure.get("groups")
    if groups:
        last = min(groups, key=lambda one: one["share"])
        text = f"of the exposure for {last['name']}, the least shown"
        return [(percent(last["share"]), text, f"{percent(1.0 / len(groups))} would be equal")]
    text = "of the exposure for the least shown half"
    return [(percent(exposure["least_half"]), text, "50 % would be equal")]


def _reached(frame: Frame) -> tuple[str, list[tuple[str, str, str]]]:
    """How near the best it is: a sentence where that cannot be told; else a number, what it is of,
    and how sure that is.
    """
    live, reach = frame["live"], reach_of(frame)
    if any(one["state"] in ("missed", "impossible") for one in frame["limits"]):
        return "Not yet: a limit is missed.", []
    unclear = any(one["state"] == "unclear" for one in frame["limits"])
    if live.get("about") is None or unclear:
        return "Too early to tell.", []
    sure = f"{100.0 * (1.0 - live['delta']):g} % sure"
    if reach is not None and reach[1] < _TOLD:
        between = f"between {percent(reach[1])} and {percent(reach[2])} of the best ({sure})"
        untried = " What was hardly tried may be better." if live.get("warning") else ""
        return f"Too early to tell: {between}.{untried}", []
    if reach is not None:
        share, low, high = reach
        between = f"{percent(low)} to {percent(high)}, {sure}" if low < high else sure
        return "", [(percent(share), "of the best reachable", between)]
    gap = max(live["about"] - frame["value"], 0.0)
    widest = max(live["high"] - frame["value"], 0.0)
    return "", [(number(gap), "below the best reachable", f"at most {number(widest)}, {sure}")]


def _chart(name: str, caption: str = "", **data: Any) -> str:
    """A place for a chart of a reward over time, which the script draws."""
    more = "".join(f' data-{key}="{html.escape(str(x))}"' for key, x in data.items())
    text = html.escape(caption or f"{name} a visit, average so far")
    return (
        f'<figure><figcaption>{text}</figcaption><div class="plot" '
        f'data-reward="{html.escape(name)}"{more}></div></figure>'
    )


def _shares(exposure: Frame, earlier: Frame | None) -> str:
    """The Lorenz curve in words and in numbers."""

    def at(curve: list[float] | None, tenth: int) -> str:
        return percent(curve[tenth * (len(curve) - 1) // 10] if curve else None)

    old = None if earlier is None else earlier["lorenz"]
    rows = [[f"{10 * k} %", at(exposure["lorenz"], k), at(old, k)] for k in range(1, 11)]
    then = "earlier" if earlier is None else f"{ago(earlier['seconds_ago'])} ago"
    words = f"<p>{html.escape(exposure['words'])}</p>"
    head = ["the least shown", "now", then]
    return words + table("lorenz", "Their share of the exposure", head, rows)


def _proof(frame: Frame) -> str:
    """f, the best, and the guarantee, in numbers."""
    live = frame["live"]
    if live.get("at_most") is not None:
        sure = f"{100.0 * live['confidence']:g} % sure"
        words = f"Guaranteed: no way of showing gives more than {number(live['at_most'])} ({sure})."
    else:
        words = f"No guarantee yet: {_plainly(live.get('reason') or 'too few decisions')}."
    between = _NONE
    if live.get("low") is not None:
        between = f"{number(live['low'])} to {number(live['high'])}"
    rows = [
        ["f now", number(frame["value"])],
        ["the best, about", number(live.get("about"))],
        [f"its interval, {100.0 * (1.0 - live.get('delta', 0.05)):g} %", between],
        ["the best, at most", number(live.get("at_most"))],
        ["visits learnt from", f"{frame['t']:,}"],
    ]
    warning = live.get("warning", "")
    note = (
        f'<p class="soft">{html.escape(warning[:1].upper() + warning[1:])}.</p>' if warning else ""
    )
    return f"<p>{words}</p>{note}" + table("numbers", "As it is now", ("", "now"), rows)


def _plainly(reason: str) -> str:
    """Why nothing is guaranteed, for people."""
    known = (words for part, words in _REASONS.items() if part in reason)
    return next(known, html.escape(reason))


# --- are the limits kept? ----------------------------------------------------------------------


def limits_of(frame: Frame) -> list[Frame]:
    """The hard constraints with a state, the reward whose chart shows them, and the price in
    rewards.
    """
    limits = []
    for one in frame["constraints"]:
        per = one.get("per", "")
        reward = one["name"].removesuffix(f" per {per}") if per else one["name"]
        known = reward in frame["average"] and (not per or per in frame["average"])
        found = {"state": _state(one), "reward": reward if known else None}
        limits.append({**one, **found, "price": _price(one, reward, frame["worth"])})
    return limits


def _state(one: Frame) -> str:
    if one["feasible"] is False:
        return "impossible"
    if one["slack"] is None:
        return "unknown"
    if one.get("kept_by_vanishing"):
        return "vanishing"
    if one["slack"] >= 0.0:
        return "kept"
    near = -one["slack"] <= _LINE * max(abs(one["level"]), 1e-9)
    return "missed" if not one["feasible"] else "line" if near else "unclear"


def _limits(frame: Frame) -> str:
    if not frame["limits"]:
        return (
            '<p class="lead">There are none.</p><p class="soft">A limit holds an average or a '
            "rate, such as <code>AtMost({'returned': 0.08}, per='ordered')</code>, as part of the "
            "objective.</p>"
        )
    states = {one["state"] for one in frame["limits"]}
    missed = sum(one["state"] in ("missed", "impossible") for one in frame["limits"])
    n = len(frame["limits"])
    lead = "Yes." if n == 1 else f"Yes, all {n}." if n > 2 else "Yes, both."
    if missed:
        lead = "No." if n == 1 else f"No: {missed} of {n} {'is' if missed == 1 else 'are'} missed."
    elif "unclear" in states:
        lead = "It is too early to tell."
    elif states == {"unknown"}:
        lead = "Not known yet."
    elif states - {"kept", "line"}:
        lead = "Yes, but look closer."
    return f'<p class="lead">{lead}</p>' + "".join(map(_limit, frame["limits"]))


def _limit(one: Frame) -> str:
    """One limit: its light, its numbers, its chart and its price."""
    per = one.get("per", "")
    shown = percent if per else number
    unit = "" if per else " a visit" if one["reward"] else ""
    look, words = _LIGHTS[one["state"]]
    average, level = shown(one["average"]), f"{one['side']} {shown(one['level'])}"
    text = {
        "kept": f"{average}{unit}; the limit is {level}.",
        "line": f"{average}{unit}; the limit is {level}.",
        "unclear": f"{average}{unit}; the limit is {level}. Too few visits to be sure.",
        "vanishing": f"{average}; the limit is {level}. But {html.escape(per)} almost vanished.",
        "missed": f"{average}{unit}; the limit is {level}.",
        "impossible": f"{average}{unit}; nothing that could be shown gives {level}.",
        "unknown": f"{'No ' + html.escape(per) + ' yet' if per else 'No feedback yet'}; "
        f"the limit is {level}.",
    }[one["state"]]
    chart = ""
    if one["reward"] is not None:
        name = f"{one['reward']} per {per}" if per else one["reward"]
        more = {"level": one["level"], "side": one["side"], **({"per": per} if per else {})}
        chart = _chart(one["reward"], f"{name}, average so far", **more)
    return (
        f'<article class="limit"><h3>{html.escape(one["name"])} '
        f'<span class="light {look}">{words}</span></h3><p>{text}</p>{chart}'
        f'<p class="soft">{one["price"]}</p></article>'
    )


def _price(one: Frame, reward: str, worth: dict[str, float]) -> str:
    """What moving the level by a round step would buy, in a reward where one can be told."""
    if one["slack"] is None:
        return ""
    looser = "Raising" if one["side"] == "at most" else "Lowering"
    per = one.get("per", "")
    step = 0.01 if per else 10.0 ** math.floor(math.log10(max(abs(one["level"]), 1e-9) / 5.0))
    price = one["shadow_price"] * (1.0 if per else step)  # of a rate: of one point
    if one["feasible"] is False:
        return ""
    if not price > 1e-9:
        return "It costs nothing: the best is within it anyway."
    level = one["level"] + (step if one["side"] == "at most" else -step)
    shown = percent if per else number
    change = f"{looser} it from {shown(one['level'])} to {shown(level)} would buy about"
    others = [name for name in worth if name != reward]
    for name in (*others, reward):
        if worth.get(name, 0.0) > 1e-9:
            amount = price / worth[name]
            visits = next((n for n, least in _SCALES.items() if amount * n >= least), None)
            if visits is None:
                return "It costs next to nothing."
            bought = f"{number(float(f'{amount * visits:.2g}'))} {html.escape(name)}"
            bought = bought if name != reward else f"what {bought} are worth,"
            return f"{change} {bought} {'a visit' if visits == 1 else f'per {visits:,} visits'}."
    return f"{change} {number(price)} of f."
