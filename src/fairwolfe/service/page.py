"""The page for the owner of f: the numbers as HTML, kept alive by a stream, with a sign-in
where there are keys.
"""

from __future__ import annotations

import asyncio
import html
import math
import re
import time
from collections.abc import Sequence
from functools import partial
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

from fairwolfe.objectives.two_sided import beta_of
from fairwolfe.service import docs, watch, wire
from fairwolfe.service.config import Config
from fairwolfe.service.core import Core
from fairwolfe.service.http import ANYONE, OPEN, Request, Response, Route
from fairwolfe.service.keys import SECONDS, other_model
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.whatif import InterviewAnswers, WhatIf
from fairwolfe.service.wire import Refused, invalid

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
FILES = {
    "app.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "docs.css": "text/css; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
}
_TEXTS = {
    name: resources.files("fairwolfe.service").joinpath("pages", name).read_text(encoding="utf-8")
    for name in (*FILES, "docs.html", "index.html", "sign_in.html")
}
_LISTED = 10  # items at either end
_FRAMES = 600  # of a stream: a client that comes back needs permission again
_POINTS = 12  # of the history, where it is a table
_PLACE = re.compile(r"{{(\w+)}}")
_NONE = "–"

Row = Sequence[str]


# --- numbers as text ---------------------------------------------------------------------------


def number(x: float | None) -> str:
    """A number with four significant digits; a dash for none.

    >>> number(1234.56), number(0.25), number(12), number(None)
    ('1,235', '0.25', '12', '–')
    """
    if x is None or not math.isfinite(x):
        return _NONE
    shown = float(f"{x:.4g}")
    if shown.is_integer():
        return f"{int(shown):,}"
    if abs(shown) < 1e-6:
        return f"{shown:g}"
    return f"{shown:,}" if abs(shown) >= 1e-4 else f"{shown:.10f}".rstrip("0")


def _percent(share: float | None) -> str:
    return _NONE if share is None else f"{number(100.0 * share)} %"


def _interval(live: dict[str, Any]) -> str:
    if live.get("low") is None:
        return _NONE
    return f"{number(live['low'])} to {number(live['high'])}"


def tables_of(frame: dict[str, Any]) -> dict[str, list[list[str]]]:
    """The rows of the tables of the page that show how it is now."""
    live = frame["live"]
    sure = f" ({100.0 * live['confidence']:g} % sure)" if live.get("at_most") is not None else ""
    width = f", {100.0 * (1.0 - live['delta']):g} %" if live.get("low") is not None else ""
    tables = {
        "numbers": [
            ["f of the average so far", number(frame["value"])],
            ["the best is about", number(live.get("about"))],
            [f"its interval{width}", _interval(live)],
            [f"the best is at most{sure}", number(live.get("at_most"))],
            ["decisions learnt from", f"{frame['t']:,}"],
        ],
        "rewards": [[name, number(x)] for name, x in frame["average"].items()],
        "counts": [
            *([name, f"{frame[name]:,}"] for name in ("joined", "expired", "open")),
            ["late reports", f"{frame['late']:,}"],
            *(
                [f"{', '.join(stage['rewards'])}: {name}", f"{stage[name]:,}"]
                for stage in frame.get("stages", ())
                for name in ("joined", "expired", "open")
            ),
        ],
    }
    tables["constraints"] = [
        [one["name"], f"{one['side']} {number(one['level'])}"]
        + [number(one[name]) for name in ("average", "slack")]
        + [number(one["shadow_price"]) + (" a point" if "per" in one else ""), _kept(one)]
        for one in frame["constraints"]
    ]
    shown = frame.get("exposure")
    if shown is not None:
        for end in ("most", "least"):
            rows = shown[end][:_LISTED]
            tables[end] = [[one["key"], number(one["exposure"])] for one in rows]
        if "groups" in shown:
            ordered = sorted(shown["groups"], key=lambda one: -one["per_item"])
            tables["groups"] = [
                [one["name"], _percent(one["share"]), number(one["per_item"])] for one in ordered
            ]
    return tables


def _kept(one: dict[str, Any]) -> str:
    if one["feasible"] is False:
        return "impossible"
    if one["slack"] is None:
        return f"no {one['per']} yet" if "per" in one else "not known yet"
    if one.get("kept_by_vanishing"):
        return f"kept only because {one['per']} vanishes"
    return "kept" if one["slack"] >= 0.0 else "missed"


def frame_of(core: Core, model: Model, live: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a model, in numbers and in tables."""
    frame = watch.frame_of(core, model, live)
    return {**frame, "tables": tables_of(frame)}


# --- as HTML -----------------------------------------------------------------------------------


def _table(id: str, caption: str, head: Row, rows: Sequence[Row], words: Sequence[int] = ()) -> str:
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


def _html(name: str, **places: str) -> str:
    """A file with its places filled; what is not HTML already is escaped by the caller."""
    return _PLACE.sub(lambda match: places[match[1]], _TEXTS[name])


def _hidden(yes: bool) -> str:
    return "hidden" if yes else ""


def _history(service: Any, model: Model) -> list[Row]:
    points = watch.history_of(service.core, model, _POINTS)
    now = service.core.clock.now()
    rows: list[Row] = []
    for point in reversed(points):
        row = [_ago(now - point["clock"]), f"{point['t']:,}", number(point["value"])]
        row += [number(point.get("about")), _interval(point), number(point.get("at_most"))]
        rows.append([*row, number(point.get("gini"))] if model.ranks else row)
    return rows


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{number(round(seconds / size, 1))} {unit}"
    return f"{seconds:.0f} s"


def _lorenz(shown: dict[str, Any], earlier: dict[str, Any] | None) -> list[Row]:
    def at(curve: list[float] | None, tenth: int) -> str:
        return _percent(curve[tenth * (len(curve) - 1) // 10] if curve else None)

    old = None if earlier is None else earlier["lorenz"]
    return [[f"{10 * k} %", at(shown["lorenz"], k), at(old, k)] for k in range(1, 11)]


def _change_rows(lines: Sequence[dict[str, Any]]) -> list[Row]:
    def when(line: dict[str, Any]) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(line["when"]))

    return [
        [str(line["version"]), when(line), line["who"] or _NONE]
        + [line[f"{side}_words"] or _NONE for side in ("from", "to")]
        for line in lines
    ]


_CAPTIONS: dict[str, tuple[str, Row]] = {
    "numbers": ("As it is now", ("what", "now")),
    "rewards": ("Averages so far", ("reward", "average")),
    "constraints": (
        "Averages against their levels",
        ("constraint", "level", "average", "slack", "shadow price", "state"),
    ),
    "most": ("Most shown, exposures a decision", ("item", "exposure")),
    "least": ("Least shown, exposures a decision", ("item", "exposure")),
    "groups": ("Groups; 1 an item is their due", ("group", "share", "an item")),
    "counts": (
        "Decisions, and reports after their window: those change nothing any more",
        ("what", "count"),
    ),
}


async def _page(service: Any, request: Request) -> Response:
    if not service.config.public:  # there anybody may see the sign-in
        try:
            service.admit(request, "read", None)
        except Refused as refused:
            return _refused(service, request, refused, 200)
    models = [model.name for model in service.models_of(request)]
    name = request.query.get("model") or next(iter(models), next(iter(service.core.models)))
    if request.key is not None and not request.key.sees(name):
        raise other_model(request.key, name)
    model = service.core.model(name)
    live = await asyncio.to_thread(watch.live_of, model)
    frame = frame_of(service.core, model, live)
    tables = frame["tables"]
    shown = frame.get("exposure") or {"words": "", "lorenz": []}
    earlier = watch.earlier_of(service.core, model) if model.ranks else None
    changes = watch.changes_of(service.core, model)
    objective = read_objective(model.objective)
    beta = None if objective is None else beta_of(objective)
    head = ["ago", "decisions", "f", "about", "interval", "at most"]
    head += ["Gini index"] if model.ranks else []
    places = {
        f"t_{name}": _table(name, caption, columns, tables.get(name, []))
        for name, (caption, columns) in _CAPTIONS.items()
    }
    caption = "f and the best that can be reached"
    places["t_history"] = _table("history", caption, head, _history(service, model))
    head = ["items", "now", "earlier"]
    caption = "Exposure of the least shown part of the items"
    places["t_lorenz"] = _table("lorenz", caption, head, _lorenz(shown, earlier))
    head, rows = ["version", "when", "who", "from", "to"], _change_rows(changes)
    places["t_changes"] = _table("changes", "Newest first, in UTC", head, rows, (1, 2, 3, 4))
    signed_in = bool(service.config.keys)
    parts = {
        "beta": beta is not None,
        "constraints": bool(frame["constraints"]),
        "exposure": model.ranks,
        "groups": "groups" in tables,
        "unchanged": not changes,
        "changes": bool(changes),
        "key": signed_in,
    }
    sign_out = '<form method="post" action="sign-out"><button>Sign out</button></form>'
    return _answer(
        _html(
            "index.html",
            model=html.escape(model.name),
            models="".join(_link(name, name == model.name) for name in models),
            keys="yes" if signed_in else "no",
            when=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            sign_out=sign_out if signed_in else "",
            sentence=html.escape(str(live["sentence"])),
            stopped=html.escape(model.stopped),
            objective=html.escape(model.objective),
            description=html.escape(model.description),
            version=str(model.version),
            width="half" if len(model.rewards) == 1 else "whole",
            words=html.escape(shown["words"]),
            beta=number(beta),
            open_text="open" if beta is None else "",
            **{f"no_{name}": _hidden(not shown) for name, shown in parts.items()},
            **places,
        )
    )


def _link(name: str, current: bool) -> str:
    here = ' aria-current="page"' if current else ""
    return f'<li><a href="?model={html.escape(name)}"{here}>{html.escape(name)}</a></li>'


def _answer(text: str, status: int = 200) -> Response:
    return Response(text.encode(), "text/html; charset=utf-8", status, _HEADERS)


def docs_of(document: dict[str, Any], config: Config) -> bytes:
    """The OpenAPI document as a page."""
    url = f"{'http' if config.tls is None else 'https'}://{config.listen}"
    return _html("docs.html", **docs.places(document, url, bool(config.keys))).encode()


async def _docs(service: Any, request: Request) -> Response:
    return Response(service.docs, "text/html; charset=utf-8", headers=_HEADERS)


async def _file(service: Any, request: Request) -> Response:
    name = request.params["name"]
    if name not in FILES:
        raise Refused(404, "not_found", f"there is no file {name!r:.80}", "name")
    return Response(_TEXTS[name].encode(), FILES[name], headers=_HEADERS)


# --- sign-in -----------------------------------------------------------------------------------


async def _sign_in(service: Any, request: Request) -> Response:
    if not service.config.keys:
        raise Refused(404, "no_keys", "this service has no keys, so no sign-in is needed")
    given = parse_qs(request.body.decode("ascii", "replace"), max_num_fields=4)
    key = given.get("key", [""])[0].strip()
    if not key:
        raise Refused(422, "no_key", "no key is given; give one that may read", "key")
    token = service.sessions.open(service.keys.check(f"Bearer {key}", "read").sha256)
    cookie = _cookie(service, token, SECONDS) + ("; Secure" if request.secure else "")
    headers = {**_HEADERS, "location": ".", "set-cookie": cookie}
    return Response(b"", "text/html; charset=utf-8", 303, headers)


def _cookie(service: Any, token: str, seconds: int) -> str:
    """A cookie of this page; with 0 seconds it is removed."""
    return f"{service.cookie}={token}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict"


def _without_cookie(service: Any, answer: Response) -> Response:
    return answer._replace(headers={**answer.headers, "set-cookie": _cookie(service, "", 0)})


async def _sign_out(service: Any, request: Request) -> Response:
    service.sessions.close(request.cookie(service.cookie) or "")
    return _without_cookie(service, _sign_in_page(service, "You have signed out."))


def _sign_in_page(service: Any, message: str, status: int = 200) -> Response:
    """A page with a sentence, and the sign-in where there is one."""
    hidden = _hidden(not service.config.keys)
    title = "Sign in" if service.config.keys else "Refused"
    text = _html("sign_in.html", title=title, message=html.escape(message), hidden=hidden)
    return _answer(text, status)


def _refused(
    service: Any, request: Request, refused: Refused, status: int | None = None
) -> Response:
    """Why not, for people: who has shown no key yet is only asked for one."""
    message = refused.message if refused.error != "no_key" or refused.field else ""
    answer = _sign_in_page(service, message[:1].upper() + message[1:], status or refused.status)
    return _without_cookie(service, answer) if refused.error == "signed_out" else answer


# --- the stream, what-if, and who changed f ----------------------------------------------------


async def _stream(service: Any, request: Request) -> Response:
    most = min(number_in(request, "frames", 1) or _FRAMES, _FRAMES)
    service.broadcast.enter()
    return Response(
        service.broadcast.listen(request.model, most, partial(service.may_go_on, request)),
        "text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        on_end=service.broadcast.leave,
    )


async def _what_if(service: Any, request: Request) -> Response:
    model, body = request.model, request.read(WhatIf)
    run = await service.what_if.start(model, service.core.recent[model.name].contexts(), body)
    reply, media = wire.encode(run.view(), request.accept)
    return Response(reply, media, 202, {"location": f"/v1/models/{model.name}/what-if/{run.id}"})


async def _what_if_answer(service: Any, request: Request) -> Any:
    return service.what_if.find(request.model, request.params["id"]).view()


async def _questions(service: Any, request: Request) -> Any:
    answers = request.read(InterviewAnswers).answers
    run = service.what_if.find(request.model, request.params["id"])
    return await asyncio.to_thread(run.interview, answers)


async def _changes(service: Any, request: Request) -> Any:
    return {"changes": watch.changes_of(service.core, request.model)}


def number_in(request: Request, name: str, least: int) -> int | None:
    """The one parameter that a query may have, a whole number; None where it is not given."""
    for unknown in request.query.keys() - {name}:
        raise invalid(f"{unknown!r:.80} is unknown; {name} is known", unknown)
    given = request.query.get(name)
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= 9 and int(given) >= least):
        raise invalid(f"{name} is {given!r:.80}; give a whole number from {least} on", name)
    return int(given)


_HTML = "text/html"
_M = "/v1/models/{model}"
ROUTES = (
    Route("GET", "/", OPEN, _page, media=_HTML, refusal=_refused),
    Route("GET", "/docs", OPEN, _docs, media=_HTML, refusal=_refused),
    Route("GET", "/page/{name}", ANYONE, _file, media="text/*"),
    Route("POST", "/sign-in", ANYONE, _sign_in, (303,), media=_HTML, refusal=_refused),
    Route("POST", "/sign-out", ANYONE, _sign_out, media=_HTML, refusal=_refused),
    Route("GET", f"{_M}/stream", "read", _stream, media="text/event-stream"),
    Route("POST", f"{_M}/what-if", "read", _what_if, (202,)),
    Route("GET", f"{_M}/what-if/{{id}}", "read", _what_if_answer),
    Route("POST", f"{_M}/what-if/{{id}}/questions", "read", _questions),
    Route("GET", f"{_M}/changes", "read", _changes),
)
"""The routes of the page; `routes.ROUTES` has them too."""
