"""The routes: who may use them, and what they answer."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from fairwolfe.agent.names import keyed
from fairwolfe.core.catalogue import sizes
from fairwolfe.errors import InvalidInput
from fairwolfe.service import logs, metrics, openapi, page, watch, wire
from fairwolfe.service.config import Config, Key
from fairwolfe.service.core import Core
from fairwolfe.service.events import Event, ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.hot import KINDS, Hot, Sizes, too_large
from fairwolfe.service.http import Request, Response
from fairwolfe.service.keys import Keys
from fairwolfe.service.model import Model
from fairwolfe.service.page import number_in
from fairwolfe.service.refusal import Refused, invalid
from fairwolfe.service.sessions import Sessions
from fairwolfe.service.spec import ANYONE, OPEN, Spec
from fairwolfe.service.watch import Audience
from fairwolfe.service.whatif import Asker

__all__ = ["ANYONE", "OPEN", "ROUTES", "Route", "Service", "Spec"]

logger = logging.getLogger("fairwolfe.service")

_TICK = 0.05  # seconds
_BACKUP_PAGES = 64  # of 16 kB, between two groups
_CHUNK = 1 << 16


class Route(NamedTuple):
    """A route of a service: the pattern of its path, and the scope that a key needs."""

    spec: Spec
    pattern: re.Pattern[str]
    scope: str | None


class Service:
    """A core with its keys, routes and page."""

    def __init__(self, core: Core, config: Config, on_end: Callable[[], None]) -> None:
        self.core, self.config = core, config
        self.keys = Keys(config.keys)
        self.windows = core.windows
        self.sizes = Sizes(config)
        self.hot = {
            kind.path.replace("{model}", name).encode(): Hot(kind, core, model, self.sizes)
            for kind in KINDS
            for name, model in core.models.items()
        }
        self.routes = tuple(Route(one, _pattern(one.path), self._scope(one)) for one in ROUTES)
        self.sessions, self.cookie = Sessions(), f"fairwolfe-{core.store.token}"
        self.audience = Audience(core, config.limits.listeners, page.frame_of)
        self.asker = Asker()
        self.ending = False
        self._on_end = on_end
        self._aside: set[asyncio.Task[None]] = set()

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI document, made once: anybody may ask for it, as often as they like."""
        return openapi.document(self.config, ROUTES)

    def _scope(self, spec: Spec) -> str | None:
        if spec.scope == ANYONE:
            return None
        if spec.scope == OPEN:
            return "read" if self.config.public else None
        return spec.scope

    def open(self, request: Request, stated: int) -> None:
        """Find the route of a request whose head has arrived, check its key, and set how large its
        body may be; Refused where it may not go on. stated: Content-Length, or 0.
        """
        hot = self.hot.get(request.target) if request.method == "POST" else None
        if hot is None:
            hot = self._open(request)
        if hot is not None:
            request.hot, request.path = hot, hot.path
            self.core.numbers.begin(hot.path)
            request.key = self._key(request, hot.kind.scope)
            request.most = hot.admit(stated, request.key)
        elif stated > request.most:
            raise too_large(request.most)
        coding = request.header(b"content-encoding", "identity")
        if coding.lower() != "identity":
            raise Refused(
                415,
                "unsupported_coding",
                f"Content-Encoding is {coding!r:.80}; send the body as it is",
                "content-encoding",
            )

    def _open(self, request: Request) -> Hot | None:
        """Find a route by its pattern; the hot route that it is, if it is one."""
        raw = request.target.partition(b"?")[0].decode("latin-1")
        method = "GET" if request.method == "HEAD" else request.method
        others = []
        for route in self.routes:
            match = route.pattern.fullmatch(raw)
            if match is None:
                continue
            if route.spec.method != method:
                others.append(route.spec.method)
                continue
            request.params = {name: unquote(text) for name, text in match.groupdict().items()}
            if route.spec.handler is None:
                model = self.core.model(request.params["model"])
                kind = route.spec.path.rpartition("/")[2]
                return self.hot[f"/v1/models/{model.name}/{kind}".encode()]
            request.route, request.path = route, route.spec.path
            self.core.numbers.begin(request.path)
            request.who, request.key = self.admit(request, route.scope)
            request.most = self.sizes.of(request.key).body
            return None
        where = f"{request.method} {unquote(raw)!r:.120}"
        if others:
            allowed = ", ".join(sorted({*others, *(["HEAD"] if "GET" in others else [])}))
            text = f"{where}: the method is not allowed; use {allowed}"
            raise Refused(405, "wrong_method", text, headers={"allow": allowed})
        raise Refused(404, "not_found", f"{where}: there is no such path; see /openapi.json")

    def _key(self, request: Request, scope: str) -> Key | None:
        """The key of a request; that of the last one on its connection is not hashed again."""
        if not self.keys:
            return None
        connection, shown = request.connection, request.headers.get(b"authorization")
        known, place = connection.shown
        if shown is None or shown != known:
            place = self.keys.find(None if shown is None else shown.decode("latin-1"))
            connection.shown = (shown, place)
        return self.keys.allow(place, scope)

    def admit(self, request: Request, scope: str | None) -> tuple[str, Key | None]:
        """The name of the key that a request shows, and the key; a browser that has signed in shows
        a cookie instead, and may only read. Refused where they may not do this.
        """
        token = request.cookie(self.cookie)
        shown = b"authorization" in request.headers
        if not shown and scope == "read" and token is not None and self.config.keys:
            return self.sessions.who(token), None
        key = None if scope is None else self._key(request, scope)
        return ("" if key is None else key.name), key

    async def answer(self, request: Request) -> Response:
        """The answer to a request that has arrived whole."""
        assert request.route is not None
        assert request.route.spec.handler is not None
        return _response(await request.route.spec.handler(self, request), request.accept)

    def end(self) -> None:
        """Nothing more begins, and all streams end."""
        self.ending = True
        self.audience.end()
        self.asker.end()

    def do_aside(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do what takes a while on another thread, and tell the loop what came of it."""

        async def both() -> None:
            try:
                result = await asyncio.to_thread(work)
                if not self.ending:
                    done(result)
            except Exception:
                logger.exception("a point of the history failed")

        task = asyncio.create_task(both())
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While it serves, windows close."""
        self.core.aside = self.do_aside
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            self.end()
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self._on_end()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            try:
                self.core.tick()
            except Exception:  # the next one may do better; windows must continue to close
                logger.exception("a tick failed")


# --- decisions and feedback --------------------------------------------------------------------


async def _decision(service: Service, request: Request) -> Any:
    model = service.core.model(request.params["model"])
    return wire.found(model, service.core.find(model, request.params["id"]))


# --- items and the objective -------------------------------------------------------------------


async def _items(service: Service, request: Request) -> Any:
    model = _ranking(service, request)
    return {"items": [{"key": k, "features": row} for k, row in model.items().items()]}


async def _add_items(service: Service, request: Request) -> Any:
    model = _ranking(service, request)
    body: wire.Items = _body(request, wire.Items)

    def change() -> Event | None:
        try:
            given = [(item.key, item.features) for item in body.items]
            keys, features = keyed(given, sizes(model.problem)[1])
        except InvalidInput as error:
            raise invalid(error, "items") from error
        if body.objective:
            wire.objective_of(body.objective, model, new_items=len(keys))
        here = model.items()
        for key, row in zip(keys, features.tolist(), strict=True):
            if key in here and here[key] != row:
                raise Refused(
                    409,
                    "other_features",
                    f"item {key!r:.80} has other features; retire it with DELETE first, and add it "
                    "anew: it then has a time of its own",
                    "items",
                )
        new = [place for place, key in enumerate(keys) if key not in here]
        if not new and not body.objective:
            return None
        fresh = tuple(keys[place] for place in new)
        who = request.who
        return ItemsAdded(model.number, fresh, features[new], body.objective, who)

    await _change(service, request, model, change)
    return {"items": len(model.items())}


async def _retire(service: Service, request: Request) -> Any:
    model, key = _ranking(service, request), request.params["key"]

    def change() -> Event:
        if key not in model.items():
            raise Refused(404, "unknown_item", f"there is no item {key!r:.80} to be shown", "key")
        return ItemsRetired(model.number, (key,), "")

    await _change(service, request, model, change)
    return {"items": len(model.items())}


async def _change(
    service: Service, request: Request, model: Model, change: Callable[[], Event | None]
) -> None:
    """Change a model, and leave a line that says who did."""
    events: list[Event | None] = []

    def noted() -> Event | None:
        events.append(change())
        return events[-1]

    await service.core.change(model.name, noted)
    if events[-1] is not None:
        logs.changed(request.who, model, events[-1])


def _ranking(service: Service, request: Request) -> Model:
    model = service.core.model(request.params["model"])
    if not model.ranks:
        raise Refused(404, "no_items", f"model {model.name!r} chooses among arms; it has no items")
    return model


async def _objective(service: Service, request: Request) -> Any:
    model = service.core.model(request.params["model"])
    return _Tagged({"objective": model.objective, "version": model.version}, model.version)


async def _replace_objective(service: Service, request: Request) -> Any:
    model = service.core.model(request.params["model"])
    body: wire.Change = _body(request, wire.Change)
    wanted = request.header(b"if-match").strip()
    if not wanted:
        raise Refused(
            428,
            "no_version",
            "If-Match is missing; give the version of the objective that you replace, as GET "
            'objective has it (such as "3"), or * for any',
            "if-match",
        )

    def change() -> Event:
        if wanted not in ("*", f'"{model.version}"', str(model.version)):
            raise Refused(
                412,
                "changed_meanwhile",
                f"the objective has version {model.version}, and If-Match says {wanted!r:.80}; "
                "read it again",
                "if-match",
            )
        wire.objective_of(body.objective, model)
        return ObjectiveReplaced(model.number, body.objective, request.who)

    await _change(service, request, model, change)
    return _Tagged({"objective": model.objective, "version": model.version}, model.version)


class _Tagged(NamedTuple):
    """An answer with a version, for If-Match."""

    value: Any
    version: int


# --- what is known -----------------------------------------------------------------------------


def summary(service: Service, model: Model) -> dict[str, Any]:
    """A model in numbers."""
    known: dict[str, Any] = {
        "name": model.name,
        "kind": "ranking" if model.ranks else "arms",
        "t": model.t,
        "decisions": model.decisions,
        "open": model.ring.open,
        **model.counts,
        "average": model.average(),
        "value": model.value,
        "objective": model.objective,
        "version": model.version,
        "window": service.windows[model.name],
        "missing": model.setup.missing,
        "apply": model.setup.apply,
        "problem": {"n_features": model.problem.n_features, "rewards": dict(model.problem.rewards)},
        "policy": model.setup.policy,
        "stopped": model.stopped or None,
    }
    if model.ranks:
        known["problem"]["n_slots"] = model.n_slots
        known["items"] = len(model.items())
    return known


async def _models(service: Service, request: Request) -> Any:
    return {"models": [summary(service, model) for model in service.core.models.values()]}


async def _model(service: Service, request: Request) -> Any:
    return summary(service, service.core.model(request.params["model"]))


async def _live(service: Service, request: Request) -> Any:
    model = service.core.model(request.params["model"])
    return await asyncio.to_thread(watch.live_of, model)  # the first takes a while


async def _history(service: Service, request: Request) -> Any:
    model = service.core.model(request.params["model"])
    return {"points": watch.history_of(service.core, model, number_in(request, "most", 2))}


async def _exposure(service: Service, request: Request) -> Any:
    model = _ranking(service, request)
    return {**watch.exposure_of(model), "earlier": watch.earlier_of(service.core, model)}


async def _constraints(service: Service, request: Request) -> Any:
    model = service.core.model(request.params["model"])
    return {"constraints": watch.told_constraints(model)}


# --- health ------------------------------------------------------------------------------------


async def _healthz(service: Service, request: Request) -> Any:
    return {"alive": True}


async def _readyz(service: Service, request: Request) -> Any:
    core = service.core
    stopped = [model.stopped for model in core.models.values() if model.stopped]
    why = core.failing or ("it is ending" if service.ending else "") or " ".join(stopped)
    if why:
        raise Refused(503, "not_ready", why, retry_after=1.0)
    return {"ready": True, "replayed": core.numbers.replayed}


async def _metrics(service: Service, request: Request) -> Any:
    text = metrics.text(service.core)
    return Response(text, "text/plain; version=0.0.4; charset=utf-8")


async def _openapi(service: Service, request: Request) -> Any:
    return service.document


async def _snapshot(service: Service, request: Request) -> Any:
    if service.core.failing:
        raise Refused(503, "not_durable", service.core.failing, retry_after=1.0)
    service.core.snapshot()
    return {"seq": service.core.seq}


async def _backup(service: Service, request: Request) -> Any:
    store: Any = service.core.store
    handle, name = tempfile.mkstemp(prefix="backup-", suffix=".sqlite", dir=store.folder)
    os.close(handle)
    path = Path(name)
    try:
        for _ in store.backup(path, _BACKUP_PAGES):
            await asyncio.sleep(0)
    except BaseException:
        path.unlink(missing_ok=True)
        raise

    async def chunks() -> AsyncIterator[bytes]:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    end = partial(path.unlink, missing_ok=True)
    return Response(chunks(), "application/vnd.sqlite3", on_end=end)


_M = "/v1/models/{model}"
ROUTES = (
    *(Spec("POST", kind.path, kind.scope, None) for kind in KINDS),
    Spec("GET", f"{_M}/decisions/{{id}}", "read", _decision),
    Spec("GET", f"{_M}/items", "read", _items),
    Spec("POST", f"{_M}/items", "admin", _add_items),
    Spec("DELETE", f"{_M}/items/{{key:path}}", "admin", _retire),
    Spec("GET", f"{_M}/objective", "read", _objective),
    Spec("PUT", f"{_M}/objective", "admin", _replace_objective),
    Spec("GET", f"{_M}/constraints", "read", _constraints),
    Spec("GET", f"{_M}/live", "read", _live),
    Spec("GET", f"{_M}/history", "read", _history),
    Spec("GET", f"{_M}/exposure", "read", _exposure),
    Spec("GET", "/v1/models", "read", _models),
    Spec("GET", _M, "read", _model),
    Spec("GET", "/healthz", OPEN, _healthz),
    Spec("GET", "/readyz", OPEN, _readyz),
    Spec("GET", "/metrics", OPEN, _metrics, media="text/plain"),
    Spec("GET", "/openapi.json", OPEN, _openapi),
    Spec("POST", "/v1/admin/snapshot", "admin", _snapshot),
    Spec("GET", "/v1/admin/backup", "admin", _backup, media="application/vnd.sqlite3"),
    *page.ROUTES,
)
"""Every route; only this table states what a key must be allowed to do."""


# --- from requests to answers ------------------------------------------------------------------


def _pattern(path: str) -> re.Pattern[str]:
    """What a path matches: {name} a part between slashes, {name:path} also several."""
    text = re.sub(r"{(\w+):path}", r"(?P<\1>.+)", path)
    return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", text), re.DOTALL)


def _body(request: Request, kind: Any) -> Any:
    """What the body of a request says."""
    return wire.decode(bytes(request.body), request.header(b"content-type"), kind)


def _response(answer: Any, accept: str) -> Response:
    if isinstance(answer, Response):
        return answer
    headers = {}
    if isinstance(answer, _Tagged):
        headers["etag"] = f'"{answer.version}"'
        answer = answer.value
    body, media = wire.encode(answer, accept)
    return Response(body, media, headers=headers)
