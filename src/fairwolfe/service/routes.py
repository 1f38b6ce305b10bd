"""Every route: who may use it, and its reply. `Service` finds the route of a request.

The hot routes, decide and feedback, turn a body into work for the core (`HotEndpoint`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from fairwolfe.agent.names import attributes_of, keyed, require_attributes
from fairwolfe.core.candidates import sizes
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives.two_sided import grouped_by
from fairwolfe.service import openapi, page, watch, wire
from fairwolfe.service.config import Config, Key, Limits, Scope, bytes_of, seconds
from fairwolfe.service.core import Core, Waiter, Work
from fairwolfe.service.events import Change, ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.http import ANYONE, OPEN, Request, Response, Route
from fairwolfe.service.keys import KeyRing, Sessions
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.page import number_in
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.telemetry import log_change, log_event, metrics_text
from fairwolfe.service.trial import try_objective
from fairwolfe.service.watch import Broadcast
from fairwolfe.service.whatif import WhatIfRunner
from fairwolfe.service.wire import DecisionRequest, Refused, invalid_input, too_large

logger = logging.getLogger("fairwolfe.service")

_TICK = 0.05  # seconds
_BACKUP_PAGES = 64  # of 16 kB, between two groups
_CHUNK = 1 << 16


class HotRoute(NamedTuple):
    """A hot route: the scope that it needs, the type of its body, how that becomes requests or
    entries of feedback, and the reply.
    """

    name: str
    scope: Scope
    body: Any
    parse: Callable[
        [Any, Model, wire.RequestLimits], tuple[Sequence[DecisionRequest], Sequence[wire.Feedback]]
    ]
    reply: Callable[[Work, Any, Sequence[float]], Any]

    @property
    def path(self) -> str:
        """Of the route, for any model."""
        return f"{_M}/{self.name}"


def _decide_many_reply(work: Work, issued: Any, windows: Sequence[float]) -> Any:
    return [wire.decide_reply(work.model, one, windows) for one in issued]


def _feedback_reply(work: Work, outcomes: Any, windows: Sequence[float]) -> Any:
    return list(map(wire.feedback_reply, work.entries, outcomes))


_M = "/v1/models/{model}"
HOT_ROUTES = (
    HotRoute(
        "decide",
        "decide",
        wire.Decide,
        lambda body, model, limits: ([wire.decision_request(body, model, limits)], ()),
        lambda work, issued, windows: wire.decide_reply(work.model, issued[0], windows),
    ),
    HotRoute(
        "decide_many",
        "decide",
        wire.DecideMany,
        lambda body, model, limits: (wire.decision_requests(body, model, limits), ()),
        _decide_many_reply,
    ),
    HotRoute(
        "feedback",
        "feedback",
        wire.Feedback | list[wire.Feedback],
        lambda body, model, limits: ((), wire.feedback_entries(body)),
        _feedback_reply,
    ),
)


@lru_cache(maxsize=512)
def request_limits(limits: Limits, key: Key | None) -> wire.RequestLimits:
    """How large a request may be: the smaller of what everybody and what its key may send."""
    bounds: list[Limits | Key] = [limits] if key is None else [limits, key]
    bodies = (bytes_of("body", one.body) for one in bounds if one.body is not None)
    return wire.RequestLimits(
        min(bodies),
        min(one.candidates for one in bounds if one.candidates is not None),
        min(one.dimensions for one in bounds if one.dimensions is not None),
        limits.values,
    )


class HotEndpoint:
    """A hot route of a model."""

    def __init__(self, route: HotRoute, core: Core, model: Model) -> None:
        self.route, self.core, self.model = route, core, model
        self.windows, self.path = core.windows[model.name], route.path

    def admit(self, stated: int, key: Key | None) -> int:
        """How many bytes a body may have; Refused where it has more, or too much waits already."""
        most = request_limits(self.core.limits, key).body
        if stated > most:
            raise too_large(most)
        self.core.admit(stated)
        return most

    def work(
        self, body: bytes, content_type: str, key: Key | None, waiter: Waiter | None = None
    ) -> Work:
        """What a body asks for."""
        read = wire.decode(body, content_type, self.route.body)
        limits = request_limits(self.core.limits, key)
        requests, entries = self.route.parse(read, self.model, limits)
        weight = len(body)
        if self.model.encodes:  # a few bytes may have become many numbers
            weight += sum(watch.size_of(ask.context) for ask in requests)
        return Work(self.model, requests, entries, None, waiter, key, weight)

    def encoded(self, work: Work, result: Any, accept: str) -> tuple[bytes, str]:
        """The reply, and its content type."""
        return wire.encode(self.route.reply(work, result, self.windows), accept)


class BoundRoute(NamedTuple):
    """A route of a service: the pattern of its path, and the scope that a key needs."""

    route: Route
    pattern: re.Pattern[str]
    scope: str | None


class Service:
    """A core with its keys, routes and page."""

    def __init__(self, core: Core, config: Config, on_end: Callable[[], None]) -> None:
        self.core, self.config = core, config
        self.keys = KeyRing(config.keys)
        self.hot = {
            route.path.replace("{model}", name).encode(): HotEndpoint(route, core, model)
            for route in HOT_ROUTES
            for name, model in core.models.items()
        }
        own = {ANYONE: None, OPEN: "read" if config.public else None}
        self.routes = tuple(
            BoundRoute(one, _pattern(one.path), own.get(one.scope, one.scope)) for one in ROUTES
        )
        self.sessions, self.cookie = Sessions(), f"fairwolfe-{core.store.token}"
        self.broadcast = Broadcast(core, page.frame_of)
        self.what_if = WhatIfRunner()
        self.ending = False
        self._on_end = on_end
        self._aside: set[asyncio.Task[None]] = set()

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI document, made once: anybody may ask for it, as often as they like."""
        return openapi.document(self.config, ROUTES)

    @cached_property
    def docs(self) -> bytes:
        """The same as a page."""
        return page.docs_of(self.document, self.config)

    def reload(self, config: Config) -> None:
        """Take the keys and the limits of a configuration that was read again."""
        if bool(config.keys) != bool(self.keys):
            now = "has [[keys]], and it was started without" if config.keys else "has no [[keys]]"
            raise InvalidInput(f"the configuration {now}; end the service and start it again")
        before, after = {key for _, key in self.keys}, set(config.keys)
        waiting = _other_settings(self.config, config)
        self.keys.replace(config.keys)
        self.sessions.keep({key.sha256 for key in config.keys})
        self.core.set_limits(config.limits)
        self.config = replace(self.config, keys=config.keys, limits=config.limits)
        for made in ("document", "docs"):
            self.__dict__.pop(made, None)
        words = f"; {', '.join(waiting)} changed too, and need a restart" if waiting else ""
        log_event(
            "reloaded",
            f"keys and limits were read again{words}",
            logging.WARNING if waiting else logging.INFO,
            added=sorted(key.name for key in after - before),
            removed=sorted(key.name for key in before - after),
            restart=waiting,
        )

    def may_go_on(self, request: Request) -> bool:
        """Whether the key of a request that is under way is still there as it was."""
        return request.key is None or (request.key.sha256, request.key) in self.keys

    def open(self, request: Request, stated: int) -> None:
        """Find the route of a request whose head has arrived, check its key, and set how large its
        body may be; Refused where it may not go on. stated: Content-Length, or 0.
        """
        hot = self.hot.get(request.target) if request.method == "POST" else None
        if hot is None:
            hot = self._open(request)
        if hot is not None:
            request.hot, request.path = hot, hot.path
            self.core.metrics.begin(hot.path)
            request.key = self._key(request, hot.route.scope, hot.model.name)
            request.most = hot.admit(stated, request.key)
        elif stated > request.most:
            raise too_large(request.most)
        coding = request.header(b"content-encoding", "identity")
        if coding.lower() != "identity":
            text = f"Content-Encoding is {coding!r:.80}; send the body as it is"
            raise Refused(415, "unsupported_coding", text, "content-encoding")

    def _open(self, request: Request) -> HotEndpoint | None:
        """Find a route by its pattern; the hot route that it is, if it is one."""
        raw = request.target.partition(b"?")[0].decode("latin-1")
        method = "GET" if request.method == "HEAD" else request.method
        others = []
        for route, pattern, scope in self.routes:
            match = pattern.fullmatch(raw)
            if match is None:
                continue
            if route.method != method:
                others.append(route.method)
                continue
            request.params = {name: unquote(text) for name, text in match.groupdict().items()}
            if route.handler is None:
                model = self.core.model(request.params["model"])
                return self.hot[route.path.replace("{model}", model.name).encode()]
            request.route, request.path = route, route.path
            self.core.metrics.begin(request.path)
            self.admit(request, scope, request.params.get("model"))
            request.most = request_limits(self.config.limits, request.key).body
            return None
        where = f"{request.method} {unquote(raw)!r:.120}"
        if others:
            allowed = ", ".join(sorted({*others, *(["HEAD"] if "GET" in others else [])}))
            text = f"{where}: the method is not allowed; use {allowed}"
            raise Refused(405, "wrong_method", text, headers={"allow": allowed})
        raise Refused(404, "not_found", f"{where}: there is no such path; see /docs")

    def _key(self, request: Request, scope: str, model: str | None) -> Key | None:
        """The key of a request; that of the last one on its connection is not hashed again."""
        if not self.keys:
            return None
        connection, shown = request.connection, request.headers.get(b"authorization")
        known, digest = connection.shown
        if shown is None or shown != known:
            digest = self.keys.find(None if shown is None else shown.decode("latin-1"))
            connection.shown = (shown, digest)
        return self.keys.allow(digest, scope, model)

    def admit(self, request: Request, scope: str | None, model: str | None) -> None:
        """Find the key that a request shows; a browser that has signed in shows a cookie instead,
        and may only read. Refused where they may not do this.
        """
        token = request.cookie(self.cookie)
        shown = b"authorization" in request.headers
        if not shown and scope == "read" and token is not None and self.keys:
            request.key = self.keys.permitted(self.sessions.who(token), scope, model)
        elif scope is not None:
            request.key = self._key(request, scope, model)

    def models_of(self, request: Request) -> list[Model]:
        """The models that a request may know of."""
        return [model for model in self.core.models.values() if request.sees(model.name)]

    async def answer(self, request: Request) -> Response:
        """The answer to a request that has arrived whole."""
        assert request.route is not None
        assert request.route.handler is not None
        if "model" in request.params:
            request.model = self.core.model(request.params["model"])
        reply = await request.route.handler(self, request)
        if isinstance(reply, Response):
            return reply
        return Response(*wire.encode(reply, request.accept))

    def end(self) -> None:
        """Nothing more begins, and all streams end."""
        self.ending = True
        self.broadcast.end()
        self.what_if.end()

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
        self.core.aside, self.core.trial = self.do_aside, try_objective
        tasks = [asyncio.create_task(self._tick())]
        if self.config.retain is not None:
            from fairwolfe.service.retention import Retention

            retain = seconds("retain", self.config.retain, inf)
            tasks.append(asyncio.create_task(Retention(self.core, retain).run()))
        try:
            yield
        finally:
            self.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
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
    return wire.decision_view(request.model, service.core.find(request.model, request.params["id"]))


# --- items and the objective -------------------------------------------------------------------


async def _items(service: Service, request: Request) -> Any:
    model = _ranking(request)
    items, attributes = model.items(), model.attributes()
    return {
        "items": [
            {"key": key, "features": row, "attributes": attributes[key]}
            for key, row in items.items()
        ]
    }


async def _add_items(service: Service, request: Request) -> Any:
    model = _ranking(request)
    body: wire.AddItems = request.read(wire.AddItems)
    given = wire.item_rows(body, model, request_limits(service.config.limits, request.key))

    def change() -> Change | None:
        try:
            keys, features = keyed(given, sizes(model.problem)[1])
            attributes = [attributes_of(item.key, item.attributes) for item in body.items]
            objective = read_objective(model.objective)
            if body.objective:
                objective = wire.objective_of(body.objective, model, new_items=len(keys))
            require_attributes(grouped_by(objective) if objective else (), keys, attributes)
        except InvalidInput as error:
            raise invalid_input(error, "items") from error
        here, known = model.items(), model.attributes()
        for key, row, own in zip(keys, features.tolist(), attributes, strict=True):
            for name, same in (
                ("features", here.get(key) == row),
                ("attributes", known.get(key) == own),
            ):
                if key in here and not same:
                    text = (
                        f"item {key!r:.80} has other {name}; retire it with DELETE first, and add "
                        "it anew: it then has a time of its own"
                    )
                    raise Refused(409, f"other_{name}", text, "items")
        new = [place for place, key in enumerate(keys) if key not in here]
        if not new and not body.objective:
            return None
        fresh = tuple(keys[place] for place in new)
        pairs = tuple(tuple(attributes[place].items()) for place in new) if any(attributes) else ()
        return ItemsAdded(model.number, fresh, features[new], body.objective, request.who, pairs)

    await _change(service, request, change)
    return {"items": len(model.items())}


async def _retire(service: Service, request: Request) -> Any:
    model, key = _ranking(request), request.params["key"]

    def change() -> Change:
        if key not in model.items():
            raise Refused(404, "unknown_item", f"there is no item {key!r:.80} to be shown", "key")
        return ItemsRetired(model.number, (key,), "")

    await _change(service, request, change)
    return {"items": len(model.items())}


async def _change(service: Service, request: Request, change: Callable[[], Change | None]) -> None:
    """Change a model, and leave a line that says who did."""
    event = await service.core.change(request.model.name, change)
    if event is not None:
        log_change(request.who, request.model, event)


def _ranking(request: Request) -> Model:
    model: Model = request.model
    if not model.ranks:
        raise Refused(404, "no_items", f"model {model.name!r} chooses among arms; it has no items")
    return model


async def _objective(service: Service, request: Request) -> Any:
    model: Model = request.model
    view = {
        "objective": model.objective,
        "description": model.description,
        "version": model.version,
    }
    body, media = wire.encode(view, request.accept)
    return Response(body, media, headers={"etag": f'"{model.version}"'})


async def _replace_objective(service: Service, request: Request) -> Any:
    model, text = request.model, request.read(wire.ReplaceObjective).objective
    wanted = request.header(b"if-match").strip()
    if not wanted:
        message = (
            "If-Match is missing; give the version of the objective that you replace, as GET "
            'objective has it (such as "3"), or * for any'
        )
        raise Refused(428, "no_version", message, "if-match")

    def change() -> Change:
        if wanted not in ("*", f'"{model.version}"', str(model.version)):
            message = (
                f"the objective has version {model.version}, and If-Match says {wanted!r:.80}; "
                "read it again"
            )
            raise Refused(412, "changed_meanwhile", message, "if-match")
        wire.objective_of(text, model)
        return ObjectiveReplaced(model.number, text, request.who)

    await _change(service, request, change)
    return await _objective(service, request)


# --- what is known -----------------------------------------------------------------------------


def summary(service: Service, model: Model) -> dict[str, Any]:
    """A model in numbers."""
    windows = service.core.windows[model.name]
    known: dict[str, Any] = {
        "name": model.name,
        "kind": "ranking" if model.ranks else "arms",
        **model.summary(),
        "window": windows[-1],
        "missing": model.setup.missing,
        "apply": model.setup.apply,
        "problem": {"n_features": model.problem.n_features, "rewards": dict(model.problem.rewards)},
        "policy": model.setup.policy,
    }
    if len(windows) > 1:
        each = zip(known["stages"], windows, strict=True)
        known["stages"] = [{**stage, "window": window} for stage, window in each]
    if model.arm_names is not None:
        known["arms"] = list(model.arm_names.all)
    if model.encodes:
        known["features"] = json.loads(model.setup.features)
    if model.ranks:
        known["problem"]["n_slots"] = model.n_slots
        known["items"] = len(model.items())
    return known


async def _models(service: Service, request: Request) -> Any:
    return {"models": [summary(service, model) for model in service.models_of(request)]}


async def _model(service: Service, request: Request) -> Any:
    return summary(service, request.model)


async def _live(service: Service, request: Request) -> Any:
    return await asyncio.to_thread(watch.live_of, request.model)  # the first takes a while


async def _history(service: Service, request: Request) -> Any:
    most = number_in(request, "most", 2)
    return {"points": watch.history_of(service.core, request.model, most)}


async def _exposure(service: Service, request: Request) -> Any:
    model = _ranking(request)
    return {**watch.exposure_of(model), "earlier": watch.earlier_of(service.core, model)}


async def _constraints(service: Service, request: Request) -> Any:
    return {"constraints": watch.constraints_view(request.model)}


# --- health ------------------------------------------------------------------------------------


async def _healthz(service: Service, request: Request) -> Any:
    return {"alive": True}


async def _readyz(service: Service, request: Request) -> Any:
    core = service.core
    stopped = [model.stopped for model in service.models_of(request) if model.stopped]
    why = core.fenced or core.failing or ("it is ending" if service.ending else "")
    why = why or " ".join(stopped)
    if why:
        raise Refused(503, "not_ready", why, retry_after=1.0)
    return {"ready": True, "replayed": core.metrics.replayed}


async def _metrics(service: Service, request: Request) -> Any:
    text = metrics_text(service.core, service.models_of(request))
    return Response(text, "text/plain; version=0.0.4; charset=utf-8")


async def _openapi(service: Service, request: Request) -> Any:
    return service.document


async def _snapshot(service: Service, request: Request) -> Any:
    if service.core.failing:
        raise Refused(503, "not_durable", service.core.failing, retry_after=1.0)
    service.core.snapshot()
    return {"seq": service.core.seq}


async def _backup(service: Service, request: Request) -> Any:
    store = service.core.store
    if not isinstance(store, SQLiteStore):
        text = "the log is in PostgreSQL: use pg_basebackup, or the backups of your provider"
        raise Refused(409, "in_postgresql", text)
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


ROUTES = (
    *(Route("POST", hot.path, hot.scope, None) for hot in HOT_ROUTES),
    Route("GET", f"{_M}/decisions/{{id}}", "read", _decision),
    Route("GET", f"{_M}/items", "read", _items),
    Route("POST", f"{_M}/items", "admin", _add_items),
    Route("DELETE", f"{_M}/items/{{key:path}}", "admin", _retire),
    Route("GET", f"{_M}/objective", "read", _objective),
    Route("PUT", f"{_M}/objective", "admin", _replace_objective),
    Route("GET", f"{_M}/constraints", "read", _constraints),
    Route("GET", f"{_M}/live", "read", _live),
    Route("GET", f"{_M}/history", "read", _history),
    Route("GET", f"{_M}/exposure", "read", _exposure),
    Route("GET", "/v1/models", "read", _models),
    Route("GET", _M, "read", _model),
    Route("GET", "/healthz", OPEN, _healthz),
    Route("GET", "/readyz", OPEN, _readyz),
    Route("GET", "/metrics", OPEN, _metrics, media="text/plain"),
    Route("GET", "/openapi.json", OPEN, _openapi),
    Route("POST", "/v1/admin/snapshot", "admin", _snapshot),
    Route("GET", "/v1/admin/backup", "admin", _backup, media="application/vnd.sqlite3"),
    *page.ROUTES,
)
"""Every route; only this table states what a key must be allowed to do."""


# --- parts -------------------------------------------------------------------------------------


def _other_settings(old: Config, new: Config) -> list[str]:
    """What differs between two configurations besides keys and limits."""
    names = [name for name in old.__struct_fields__ if name not in ("keys", "limits", "models")]
    differ = [name for name in names if getattr(old, name) != getattr(new, name)]
    models = sorted(old.models.keys() | new.models.keys())
    return differ + [f"models.{m}" for m in models if old.models.get(m) != new.models.get(m)]


def _pattern(path: str) -> re.Pattern[str]:
    """What a path matches: {name} a part between slashes, {name:path} also several."""
    text = re.sub(r"{(\w+):path}", r"(?P<\1>.+)", path)
    return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", text), re.DOTALL)
