"""The page for the owner of f: the numbers as HTML, kept alive by a stream, with a sign-in
where there are keys.
"""

from __future__ import annotations

import asyncio
import html
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
from fairwolfe.service.panels import ago, limits_of, number, parts_of_page, table
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
_FRAMES = 600  # of a stream: a client that comes back needs permission again
_POINTS = 12  # of the history, where it is a table
_PLACE = re.compile(r"{{(\w+)}}")


def frame_of(core: Core, model: Model, live: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a model, in numbers and in words."""
    frame = watch.frame_of(core, model, live)
    frame["limits"] = limits_of(frame)
    return {**frame, "parts": parts_of_page(frame)}


# --- as HTML -----------------------------------------------------------------------------------


def _html(name: str, **places: str) -> str:
    """A file with its places filled; what is not HTML already is escaped by the caller."""
    return _PLACE.sub(lambda match: places[match[1]], _TEXTS[name])


def _hidden(yes: bool) -> str:
    return "hidden" if yes else ""


def _history(service: Any, model: Model) -> str:
    """f and the best over time, as a table."""

    def row(point: dict[str, Any]) -> list[str]:
        ends = [number(point.get(name)) for name in ("value", "about", "low", "high", "at_most")]
        return [f"{ago(now - point['clock'])} ago", f"{point['t']:,}", *ends]

    now = service.core.clock.now()
    points = watch.history_of(service.core, model, _POINTS)
    head = ["when", "visits", "f", "best, about", "from", "to", "at most"]
    return table("history", "When the page was loaded", head, map(row, reversed(points)))


def _change_rows(lines: Sequence[dict[str, Any]]) -> list[list[str]]:
    def when(line: dict[str, Any]) -> str:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(line["when"]))

    return [
        [str(line["version"]), when(line), line["who"] or "–"]
        + [line[f"{side}_words"] or "–" for side in ("from", "to")]
        for line in lines
    ]


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
    changes = watch.changes_of(service.core, model)
    objective = read_objective(model.objective)
    beta = None if objective is None else beta_of(objective)
    head = ["version", "when", "who", "from", "to"]
    signed_in = bool(service.config.keys)
    present = {
        "beta": beta is not None,
        "exposure": model.ranks,
        "unchanged": not changes,
        "changes": bool(changes),
        "key": signed_in,
    }
    sign_out = '<form method="post" action="sign-out"><button>Sign out</button></form>'
    caption = "Newest first, in UTC"
    return _answer(
        _html(
            "index.html",
            model=html.escape(model.name),
            models="".join(_link(name, name == model.name) for name in models),
            keys="yes" if signed_in else "no",
            when=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            sign_out=sign_out if signed_in else "",
            repr=html.escape(model.objective),
            open_text="open" if beta is None else "",
            t_history=_history(service, model),
            t_changes=table("changes", caption, head, _change_rows(changes), (1, 2, 3, 4)),
            **{f"no_{name}": _hidden(not shown) for name, shown in present.items()},
            **frame["parts"],
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
