"""The HTTP interface: a plain ASGI application of Starlette, which runs under any server."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fairwolfe.agent.names import keyed
from fairwolfe.core.catalogue import sizes
from fairwolfe.errors import InvalidInput
from fairwolfe.service import logs, metrics, openapi, page, watch, wire
from fairwolfe.service.config import Config, Key
from fairwolfe.service.core import Core
from fairwolfe.service.events import Event, ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.hot import KINDS, Hot, Sizes, too_large, too_slow
from fairwolfe.service.keys import Keys
from fairwolfe.service.model import Model
from fairwolfe.service.page import number_in
from fairwolfe.service.refusal import Refused, invalid
from fairwolfe.service.sessions import Sessions
from fairwolfe.service.spec import ANYONE, OPEN, Spec
from fairwolfe.service.watch import Audience
from fairwolfe.service.whatif import Asker

__all__ = ["ANYONE", "OPEN", "ROUTES", "Service", "Spec", "application"]

logger = logging.getLogger("fairwolfe.service")

_TICK = 0.05  # seconds
_BACKUP_PAGES = 64  # of 16 kB, between two groups
_CHUNK = 1 << 20


class Service:
    """What the routes speak for."""

    def __init__(self, core: Core, config: Config, on_end: Callable[[], None]) -> None:
        self.core, self.config = core, config
        self.keys = Keys(config.keys)
        self.windows = core.windows
        self.sizes = Sizes(config)
        self.hot = {
            (kind.name, name): Hot(kind, core, model, self.sizes)
            for kind in KINDS
            for name, model in core.models.items()
        }
        self.sessions, self.cookie = Sessions(), f"fairwolfe-{core.store.token}"
        self.audience = Audience(core, config.limits.listeners, page.frame_of)
        self.asker = Asker()
        self.ending = False
        self._on_end = on_end
        self._aside: set[asyncio.Task[None]] = set()

    def admit(self, request: Request, scope: str | None) -> tuple[str, Key | None]:
        """Who asks: the name of a key, and the key where it is shown; who has signed in may only
        read. Refused where they may not do this.
        """
        header = request.headers.get("authorization")
        token = request.cookies.get(self.cookie)
        if header is None and scope == "read" and token is not None and self.config.keys:
            return self.sessions.who(token), None
        key = self.keys.check(header, scope)
        return ("" if key is None else key.name), key

    async def read(self, request: Request) -> bytes:
        """The body of a request, whole, in time and not too large."""
        most = self.sizes.of(request.state.key).body
        if stated(request) > most:
            raise too_large(most)
        return await self.whole(request, most)

    async def whole(self, request: Request, most: int) -> bytes:
        """A body of at most so many bytes; what has come in part counts as held."""
        core, seconds = self.core, self.config.limits.seconds
        parts: list[bytes] = []
        total = 0
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    if total + len(part) > most:
                        raise too_large(most)
                    core.hold(len(part))
                    total += len(part)
                    parts.append(part)
        except TimeoutError as error:
            raise too_slow(seconds) from error
        finally:
            core.arriving -= total
        return b"".join(parts)

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
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
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


def stated(request: Request) -> int:
    """The stated number of bytes of a body; 0 where none is stated."""
    size = request.headers.get("content-length", "")
    return int(size) if size.isascii() and size.isdecimal() else 0


async def _hot(service: Service, request: Request) -> Any:
    """What the lane does, for what does not take it."""
    path: str = request.scope["path"]
    model = service.core.model(request.path_params["model"])
    hot = service.hot[path.rpartition("/")[2], model.name]
    key = request.state.key
    body = await service.whole(request, hot.admit(stated(request), key))
    work = hot.work(body, request.headers.get("content-type", ""), key)
    result = await service.core.wait(work)
    answer, kind = hot.encoded(work, result, request.headers.get("accept", ""))
    return Response(answer, media_type=kind)


async def _decision(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
    return wire.found(model, service.core.find(model, request.path_params["id"]))


# --- items and the objective -------------------------------------------------------------------


async def _items(service: Service, request: Request) -> Any:
    model = _ranking(service, request)
    return {"items": [{"key": k, "features": row} for k, row in model.items().items()]}


async def _add_items(service: Service, request: Request) -> Any:
    model = _ranking(service, request)
    body: wire.Items = await _body(service, request, wire.Items)

    def change() -> Event | None:
        try:
            given = [(item.key, item.features) for item in body.items]
            keys, features = keyed(given, sizes(model.problem)[1])
        except InvalidInput as error:
            raise invalid(error, "items") from error
        if body.objective:
            wire.objective_of(body.objective, model, new_items=len(keys))
        here, rows = model.items(), features.tolist()
        new = [place for place, key in enumerate(keys) if here.get(key) != rows[place]]
        if not new and not body.objective:
            return None
        fresh = tuple(keys[place] for place in new)
        who = request.state.who
        return ItemsAdded(model.number, fresh, features[new], body.objective, who)

    await _change(service, request, model, change)
    return {"items": len(model.items())}


async def _retire(service: Service, request: Request) -> Any:
    model, key = _ranking(service, request), request.path_params["key"]

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
        logs.changed(request.state.who, model, events[-1])


def _ranking(service: Service, request: Request) -> Model:
    model = service.core.model(request.path_params["model"])
    if not model.ranks:
        raise Refused(404, "no_items", f"model {model.name!r} chooses among arms; it has no items")
    return model


async def _objective(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
    return _Tagged({"objective": model.objective, "version": model.version}, model.version)


async def _replace_objective(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
    body: wire.Change = await _body(service, request, wire.Change)
    wanted = request.headers.get("if-match", "").strip()
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
        return ObjectiveReplaced(model.number, body.objective, request.state.who)

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
    return summary(service, service.core.model(request.path_params["model"]))


async def _live(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
    return await asyncio.to_thread(watch.live_of, model)  # the first takes a while


async def _history(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
    return {"points": watch.history_of(service.core, model, number_in(request, "most", 2))}


async def _exposure(service: Service, request: Request) -> Any:
    model = _ranking(service, request)
    return {**watch.exposure_of(model), "earlier": watch.earlier_of(service.core, model)}


async def _constraints(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
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
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _openapi(service: Service, request: Request) -> Any:
    return openapi.document(service.config, ROUTES)


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
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    yield chunk
        finally:
            path.unlink(missing_ok=True)

    return StreamingResponse(chunks(), media_type="application/vnd.sqlite3")


_M = "/v1/models/{model}"
ROUTES = (
    *(Spec("POST", kind.path, kind.scope, _hot) for kind in KINDS),
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


async def _body(service: Service, request: Request, kind: Any) -> Any:
    """What the body of a request says."""
    return wire.decode(await service.read(request), request.headers.get("content-type", ""), kind)


def _endpoint(service: Service, spec: Spec) -> Callable[[Request], Awaitable[Response]]:
    scope: str | None = spec.scope
    if spec.scope in (OPEN, ANYONE):
        scope = "read" if spec.scope == OPEN and service.config.public else None
    route = spec.path

    async def endpoint(request: Request) -> Response:
        began = time.perf_counter()
        accept = request.headers.get("accept", "")
        numbers = service.core.numbers
        numbers.begin(route)
        status = 0
        try:
            request.state.who, request.state.key = service.admit(request, scope)
            response = _response(await spec.handler(service, request), accept)
            status = response.status_code
        except Refused as refused:
            numbers.refuse(refused)
            if spec.refusal is not None:
                response = spec.refusal(service, request, refused)
            else:
                response = _refusal(refused, accept)
            status = response.status_code
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody will read it
        except Exception:
            status = 500  # answered by _broken
            raise
        finally:
            numbers.end(route, status, time.perf_counter() - began)
        return response

    return endpoint


def _response(answer: Any, accept: str) -> Response:
    if isinstance(answer, Response):
        return answer
    headers = {}
    if isinstance(answer, _Tagged):
        headers["etag"] = f'"{answer.version}"'
        answer = answer.value
    body, kind = wire.encode(answer, accept)
    return Response(body, media_type=kind, headers=headers)


def _refusal(refused: Refused, accept: str) -> Response:
    status, headers, body, kind = wire.refusal(refused, accept)
    return Response(body, status, headers, kind)


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
    message = f"{request.method} {request.url.path!r:.120}: {error.detail}; see /openapi.json"
    return _refusal(Refused(error.status_code, code, message), request.headers.get("accept", ""))


async def _broken(request: Request, error: Exception) -> Response:
    return _refusal(wire.refused(error), request.headers.get("accept", ""))


def application(service: Service) -> Starlette:
    """The ASGI application of a service."""
    routes = [Route(spec.path, _endpoint(service, spec), methods=[spec.method]) for spec in ROUTES]
    handlers: Any = {HTTPException: _not_found, Exception: _broken}
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=service.lifespan)
