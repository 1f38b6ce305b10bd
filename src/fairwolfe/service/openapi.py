"""The OpenAPI document: made from the routes and the types of the wire."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec

from fairwolfe.service import page, wire
from fairwolfe.service.config import Config
from fairwolfe.service.reference import ENTRIES, GROUPS, PARAMETERS, Entry
from fairwolfe.service.whatif import InterviewAnswers, WhatIf

_BODIES: dict[tuple[str, str], Any] = {
    ("POST", "decide"): wire.Decide,
    ("POST", "decide_many"): wire.DecideMany,
    ("POST", "feedback"): wire.Feedback | list[wire.Feedback],
    ("POST", "items"): wire.AddItems,
    ("PUT", "objective"): wire.ReplaceObjective,
    ("POST", "what-if"): WhatIf,
    ("POST", "questions"): InterviewAnswers,
}
_ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "decide"): wire.DecideReply,
    ("POST", "decide_many"): list[wire.DecideReply],
    ("POST", "feedback"): list[wire.FeedbackReply],
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
        entry = ENTRIES[f"{route.method} {path}"]
        paths.setdefault(path, {})[route.method.lower()] = _operation(config, route, entry, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fairwolfe",
            "version": version("fairwolfe"),
            "description": "Decisions for a concave function of several average rewards.",
        },
        "tags": [{"name": name, "description": text} for name, text in GROUPS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(config: Config, route: Any, entry: Entry, by_kind: dict[str, Any]) -> dict[str, Any]:
    tail = (route.method, route.path.rsplit("/", 1)[-1])
    schema = by_kind[str(_ANSWERS[tail])] if tail in _ANSWERS else {"type": "object"}
    content: dict[str, Any] = {wire.JSON: {"schema": schema}, wire.MSGPACK: {}}
    error: dict[str, Any] = {wire.JSON: {"schema": by_kind[str(wire.Error)]}}
    if route.media is not None:
        content = {route.media: {}}
    if route.refusal is not None:  # for people
        error = content
    answers: dict[str, Any] = {
        code: {"description": text, "content": error} for code, text in _REFUSALS.items()
    }
    media = route.media or wire.JSON
    done = {**content, media: {**content[media], "example": entry.reply}}
    for code in route.status:
        answers[str(code)] = {"description": "Done", "content": done}
    operation: dict[str, Any] = {
        "tags": [entry.group],
        "summary": entry.summary,
        "description": entry.description,
        "operationId": tail[1] if tail in _ANSWERS else route.handler.__name__.strip("_"),
        "responses": answers,
        "security": [{"key": []}] if config.keys else [],
        "x-scope": route.scope,
    }
    parameters = [_parameter(config, name) for name in re.findall(r"{(\w+)", route.path)]
    parameters += [
        _described(name, {"in": "query", "required": False, "schema": schema})
        for name, schema in _QUERIES.get(route.path, ())
    ]
    if tail == ("PUT", "objective"):
        given = {"in": "header", "required": True, "schema": {"type": "string"}}
        parameters.append(_described("If-Match", given))
    if parameters:
        operation["parameters"] = parameters
    body = {wire.JSON: {"schema": by_kind[str(_BODIES[tail])]}} if tail in _BODIES else {}
    if route.path == "/sign-in":
        body = {"application/x-www-form-urlencoded": {"schema": _FORM}}
    if body:
        body = {media: {**one, "example": entry.request} for media, one in body.items()}
        operation["requestBody"] = {"required": True, "content": body}
    if tail == ("POST", "decide"):
        model, id = {"model": "$request.path.model"}, {"id": "$response.body#/id"}
        answers["200"]["links"] = {
            "feedback": {"operationId": "feedback", "parameters": model, "requestBody": id},
            "decision": {"operationId": "decision", "parameters": model | id},
        }
    return operation


def _parameter(config: Config, name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if name == "name":
        schema["enum"] = list(page.FILES)
    elif name == "model" and all(key.models is None for key in config.keys):
        schema["enum"] = list(config.models)  # else not everybody may know all of them
    return _described(name, {"in": "path", "required": True, "schema": schema})


def _described(name: str, parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter with its name, what it is, and an example."""
    description, example = PARAMETERS[name]
    values = parameter["schema"].get("enum", [example])
    example = example if example in values else values[0]
    return {"name": name, "description": description, "example": example, **parameter}
