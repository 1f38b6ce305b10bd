"""The HTTP interface: a plain ASGI application of Starlette, which runs under any server."""

from __future__ import annotations

import asyncio
import html
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fairwolfe.agent.names import keyed
from fairwolfe.core.catalogue import sizes
from fairwolfe.core.packing import unpack
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniEquality
from fairwolfe.service import logs, metrics, openapi, wire
from fairwolfe.service.config import Config
from fairwolfe.service.core import Core
from fairwolfe.service.events import Event, ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.hot import KINDS, Hot, Sizes, too_large, too_slow
from fairwolfe.service.keys import Keys
from fairwolfe.service.model import Model, constraints_of, read_objective
from fairwolfe.service.refusal import Refused

__all__ = ["ROUTES", "Service", "application"]

logger = logging.getLogger("fairwolfe.service")

_TICK = 0.05  # seconds
_LORENZ = 100  # parts
_LISTED = 20  # items at either end
_BACKUP_PAGES = 64  # of 16 kB, between two groups
_CHUNK = 1 << 20
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


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
        self.ending = False
        self._on_end = on_end

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """While it serves, windows close."""
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            self.ending = True
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self._on_end()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            try:
                self.core.tick()
            except Exception:  # the next one may do better; windows must go on closing
                logger.exception("a tick failed")


Handler = Callable[[Service, Request], Awaitable[Any]]


class Spec(NamedTuple):
    """A route: its method, its path, the scope that it needs, and who answers."""

    method: str
    path: str
    scope: str
    handler: Handler
    status: tuple[int, ...] = (200,)


OPEN = "open"
"""The scope of what needs no key on a loopback address, and `read` on any other."""


# --- decisions and feedback --------------------------------------------------------------------


async def _hot(service: Service, request: Request) -> Any:
    """What the lane does, for what does not take it."""
    path: str = request.scope["path"]
    model = service.core.model(request.path_params["model"])
    hot = service.hot[path.rpartition("/")[2], model.name]
    key = request.state.key
    body = await _whole(service, request, hot.admit(_stated(request), key))
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
            read_objective(body.objective)
        except InvalidInput as error:
            field = "objective" if body.objective and "item" not in str(error) else "items"
            raise Refused(422, "invalid", str(error), field) from error
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
        return ItemsAdded(model.number, fresh, features[new], body.objective)

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
        key = request.state.key
        logs.changed("" if key is None else key.name, model, events[-1])


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
    wanted = request.headers.get("if-match", "*").strip()

    def change() -> Event:
        if wanted not in ("*", f'"{model.version}"', str(model.version)):
            raise Refused(
                412,
                "changed_meanwhile",
                f"the objective has version {model.version}, and If-Match says {wanted!r:.80}; "
                "read it again",
                "if-match",
            )
        try:
            read_objective(body.objective or " ")
        except InvalidInput as error:
            raise Refused(422, "invalid", str(error), "objective") from error
        return ObjectiveReplaced(model.number, body.objective)

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
        "problem": {"n_features": model.problem.n_features, "rewards": model.problem.rewards},
        "policy": model.setup.policy,
        "stopped": model.stopped or None,
    }
    known["problem"]["rewards"] = dict(model.problem.rewards)
    if model.ranks:
        known["problem"]["n_slots"] = model.n_slots
        known["items"] = len(model.items())
    return known


async def _models(service: Service, request: Request) -> Any:
    return {"models": [summary(service, model) for model in service.core.models.values()]}


async def _model(service: Service, request: Request) -> Any:
    return summary(service, service.core.model(request.path_params["model"]))


async def live_of(model: Model) -> dict[str, Any]:
    """How far from the best: numbers and a sentence."""
    agent = model.agent
    if agent is None or model.t == 0:
        return {"t": 0, "sentence": "Nothing has been learnt yet."}
    try:
        # The first takes a while, and does not need the state: others are served meanwhile.
        live = await asyncio.to_thread(agent.live)
    except InvalidInput as error:
        return {"t": model.t, "value": model.value, "sentence": str(error)}
    return {**asdict(live), "sentence": str(live)}


async def _live(service: Service, request: Request) -> Any:
    return await live_of(service.core.model(request.path_params["model"]))


async def _history(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
    points = service.core.store.history(model.number)
    return {"points": [{"clock": clock, **unpack(point)[0]} for clock, point in points]}


async def _exposure(service: Service, request: Request) -> Any:
    model = _ranking(service, request)
    exposures = model.exposures()
    ordered = sorted(exposures.items(), key=lambda pair: pair[1])
    shares = np.array([share for _, share in ordered])
    total = float(shares.sum())
    lorenz: list[float] = []
    gini = None
    if total > 0.0:
        curve = np.concatenate([[0.0], np.cumsum(shares) / total])
        places = np.linspace(0.0, len(shares), _LORENZ + 1)
        lorenz = np.interp(places, np.arange(len(curve)), curve).tolist()
        gini = -GiniEquality().value(shares) / total
    ends = [{"key": key, "exposure": share} for key, share in ordered]
    return {
        "items": len(ordered),
        "lorenz": lorenz,
        "gini": gini,
        "least": ends[:_LISTED],
        "most": ends[::-1][:_LISTED],
    }


async def _constraints(service: Service, request: Request) -> Any:
    model = service.core.model(request.path_params["model"])
    names = ("name", "level", "average", "slack", "shadow_price", "feasible")
    return {
        "constraints": [
            {**{name: getattr(one, name) for name in names}, "sentence": str(one)}
            for one in constraints_of(model.agent)
        ]
    }


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


async def _page(service: Service, request: Request) -> Any:
    parts = []
    for model in service.core.models.values():
        live = await live_of(model)
        counts = f"{model.decisions:,} decisions, {model.counts['joined']:,} joined, "
        counts += f"{model.counts['expired']:,} expired, {model.ring.open:,} open"
        average = ", ".join(f"{name} {x:.4g}" for name, x in model.average().items())
        lines = (html.escape(str(live["sentence"])), counts, f"On average: {html.escape(average)}")
        parts.append(f"<h2>{html.escape(model.name)}</h2><p>{'</p><p>'.join(lines)}</p>")
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta http-equiv="refresh" content="2"><title>fairwolfe</title>'
        "<style>body{font:16px/1.5 sans-serif;max-width:40em;margin:3em auto;padding:0 1em}</style>"
        f"<h1>fairwolfe</h1>{''.join(parts)}"
    )
    headers = {
        "content-security-policy": _PAGE_POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


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
    Spec("GET", "/metrics", OPEN, _metrics),
    Spec("GET", "/openapi.json", OPEN, _openapi),
    Spec("GET", "/", OPEN, _page),
    Spec("POST", "/v1/admin/snapshot", "admin", _snapshot),
    Spec("GET", "/v1/admin/backup", "admin", _backup),
)
"""Every route; what a key must be allowed to do is said here and nowhere else."""


# --- from requests to answers ------------------------------------------------------------------


async def _body(service: Service, request: Request, kind: Any) -> Any:
    """What the body of a request says."""
    most = service.sizes.of(request.state.key).body
    if _stated(request) > most:
        raise too_large(most)
    body = await _whole(service, request, most)
    return wire.decode(body, request.headers.get("content-type", ""), kind)


def _stated(request: Request) -> int:
    """The bytes that a body is said to have; 0 where nothing is said."""
    stated = request.headers.get("content-length", "")
    return int(stated) if stated.isascii() and stated.isdecimal() else 0


async def _whole(service: Service, request: Request, most: int) -> bytes:
    """The body of a request, in time and not too large; what has come in part counts as held."""
    core, seconds_ = service.core, service.config.limits.seconds
    parts: list[bytes] = []
    total = 0
    try:
        async with asyncio.timeout(seconds_):
            async for part in request.stream():
                if total + len(part) > most:
                    raise too_large(most)
                core.hold(len(part))
                total += len(part)
                parts.append(part)
    except TimeoutError as error:
        raise too_slow(seconds_) from error
    finally:
        core.arriving -= total
    return b"".join(parts)


def _endpoint(service: Service, spec: Spec) -> Callable[[Request], Awaitable[Response]]:
    scope: str | None = spec.scope
    if spec.scope == OPEN:
        scope = "read" if service.config.public else None
    route = spec.path

    async def endpoint(request: Request) -> Response:
        began = time.perf_counter()
        accept = request.headers.get("accept", "")
        numbers = service.core.numbers
        numbers.begin(route)
        status = 0
        try:
            request.state.key = service.keys.check(request.headers.get("authorization"), scope)
            response = _response(await spec.handler(service, request), accept)
            status = response.status_code
        except Refused as refused:
            numbers.refuse(refused)
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
