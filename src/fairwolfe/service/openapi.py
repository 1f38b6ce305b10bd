"""The OpenAPI document: made from the routes and the types of the wire."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from fairwolfe.service import page, wire
from fairwolfe.service.config import Config
from fairwolfe.service.whatif import Answers, WhatIf

__all__ = ["document"]

_BODIES: dict[tuple[str, str], Any] = {
    ("POST", "decide"): wire.Decide,
    ("POST", "decide_many"): wire.DecideMany,
    ("POST", "feedback"): wire.Feedback | list[wire.Feedback],
    ("POST", "items"): wire.Items,
    ("PUT", "objective"): wire.Change,
    ("POST", "what-if"): WhatIf,
    ("POST", "questions"): Answers,
}
_ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "decide"): wire.Decided,
    ("POST", "decide_many"): list[wire.Decided],
    ("POST", "feedback"): list[wire.Told],
}
_QUERIES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "/": (("model", {"type": "string"}),),
    "/v1/models/{model}/history": (("most", {"type": "integer", "minimum": 2}),),
    "/v1/models/{model}/stream": (("frames", {"type": "integer", "minimum": 1}),),
}
_FORM = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
_REFUSALS = {
    "400": "The request was broken off",
    "401": "No key, or an unknown one",
    "403": "The key may not do this",
    "404": "There is nothing of this name",
    "408": "The body came too slowly",
    "409": "It contradicts what is there",
    "412": "The objective has changed meanwhile",
    "413": "The body is too large",
    "415": "The content type is unknown",
    "422": "A value cannot be accepted; nothing changed",
    "428": "If-Match is missing",
    "429": "Too much at once; try again after Retry-After",
    "431": "The head of the request is too large",
    "503": "It cannot be made durable now; nothing changed; try again after Retry-After",
}


def document(config: Config, routes: Sequence[Any]) -> dict[str, Any]:
    """The document of a service."""
    kinds = [*_BODIES.values(), *_ANSWERS.values(), wire.Error]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    by_kind = {str(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
    paths: dict[str, Any] = {}
    for route in routes:
        path = route.path.replace(":path}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(config, route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fairwolfe",
            "version": version("fairwolfe"),
            "description": "Decisions for a concave function of several average rewards.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(config: Config, route: Any, by_kind: dict[str, Any]) -> dict[str, Any]:
    tail = (route.method, route.path.rsplit("/", 1)[-1])
    error: dict[str, Any] = {"application/json": {"schema": by_kind[str(wire.Error)]}}
    if route.refusal is not None:  # for people
        error = {route.media: {}}
    answers: dict[str, Any] = {
        code: {"description": text, "content": error} for code, text in _REFUSALS.items()
    }
    content: dict[str, Any] = {} if route.media is None else {route.media: {}}
    if not content:
        schema = by_kind[str(_ANSWERS[tail])] if tail in _ANSWERS else {"type": "object"}
        content = {wire.JSON: {"schema": schema}, wire.MSGPACK: {}}
    for code in route.status:
        answers[str(code)] = {"description": "Done", "content": content}
    operation: dict[str, Any] = {
        "operationId": tail[1] if tail in _ANSWERS else route.handler.__name__.strip("_"),
        "responses": answers,
        "security": [{"key": []}] if config.keys else [],
        "x-scope": route.scope,
    }
    parameters = [_parameter(config, name) for name in re.findall(r"{(\w+)", route.path)]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in _QUERIES.get(route.path, ())
    ]
    if tail == ("PUT", "objective"):
        schema = {"type": "string", "examples": ["*", '"3"']}
        parameters.append({"name": "If-Match", "in": "header", "required": True, "schema": schema})
    if parameters:
        operation["parameters"] = parameters
    if tail in _BODIES:
        schema = by_kind[str(_BODIES[tail])]
        body = {wire.JSON: {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": body}
    if route.path == "/sign-in":
        form = {"application/x-www-form-urlencoded": {"schema": _FORM}}
        operation["requestBody"] = {"required": True, "content": form}
    if tail == ("POST", "decide"):
        answers["200"]["links"] = {
            "feedback": {
                "operationId": "feedback",
                "parameters": {"model": "$request.path.model"},
                "requestBody": {"id": "$response.body#/id"},
            },
            "decision": {
                "operationId": "decision",
                "parameters": {"model": "$request.path.model", "id": "$response.body#/id"},
            },
        }
    return operation


def _parameter(config: Config, name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name in ("model", "name"):
        schema["enum"] = list(config.models if name == "model" else page.FILES)
    return {"name": name, "in": "path", "required": True, "schema": schema}
