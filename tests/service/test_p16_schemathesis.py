"""P16: Schemathesis against the OpenAPI document of a real server, and along its links.

Never 5xx; status, content type and body are those that the document states; what does not fit the
document is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fairwolfe.service.routes import ROUTES
from tests.service.servers import Server, config

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 20  # for each operation, as it should be and as it should not
RUNS, STEPS = 15, 6
HEAD = 'state = "state"\nlisten = "127.0.0.1:0"\n[limits]\nbody = "64 KiB"\ncandidates = 50\n'
ENCODED = """
[models.shop]
window = "5 s"
missing = "zero"
arms = ["a", "b"]
problem = { kind = "arms", n_features = 8, rewards = { clicks = [0, 1] } }
objective = { name = "minimum" }
policy = { name = "frank-wolfe", base = { name = "squarecb", gamma0 = 100.0 } }
[models.shop.features]
ranges = { price = [0, 100] }
"""
BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    text = config("5 s", head=HEAD) + ENCODED
    with Server(tmp_path_factory.mktemp("schemathesis"), text) as one:
        features = np.random.default_rng(0).uniform(-0.4, 0.4, (6, 4)).tolist()
        items = [{"key": k, "features": f} for k, f in zip("abcdef", features, strict=True)]
        one.post("/v1/models/front/items", {"items": items})
        yield one
        assert one.complaints() == []
        assert one.get("/readyz")["ready"]


def schema_of(server: Server, document: dict[str, Any]) -> Any:
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=server.url)
    return schema


def asked_of(mode: schemathesis.GenerationMode) -> list[Any]:
    """The routes; in the negative mode those with something that can be wrong. A stream has no
    end: test_page_stream.py.
    """
    given = [
        spec
        for spec in ROUTES
        if ("{" in spec.path or not mode.is_negative) and not spec.path.endswith("/stream")
    ]
    return [
        pytest.param(spec, mode, id=f"{spec.method} {spec.path} {mode.value}") for spec in given
    ]


@pytest.mark.parametrize(
    ("route", "mode"), [case for mode in schemathesis.GenerationMode for case in asked_of(mode)]
)
def test_every_operation_keeps_to_its_document(server: Server, route: Any, mode: Any) -> None:
    schema = schema_of(server, server.get("/openapi.json"))
    operation = schema[route.path.replace(":path}", "}")][route.method]
    seen = []

    @settings(BOUNDED, max_examples=EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=mode))
    def asked(case: Any) -> None:
        seen.append(case.call_and_validate(checks=CHECKS).status_code)

    asked()
    assert seen
    assert max(seen) < 500
    if mode.is_negative:
        assert min(seen) >= 400


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """The document for questions that `router` can answer, so that links can be followed."""
    narrow = deepcopy(document)
    kept = ("decide", "feedback", "decisions/{id}")
    narrow["paths"] = {
        path: operations
        for path, operations in document["paths"].items()
        if path.startswith("/v1/models/{model}/") and path.split("/", 4)[4] in kept
    }
    for operations in narrow["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["name"] == "model":
                    parameter["schema"]["enum"] = ["router"]
    number = {"type": "number", "minimum": -0.4, "maximum": 0.4}
    row = {"type": "array", "items": number, "minItems": 5, "maxItems": 5}
    schemas = narrow["components"]["schemas"]
    schemas["Decide"] = {
        "type": "object",
        "required": ["arms"],
        "properties": {"arms": {"type": "array", "items": row, "minItems": 1, "maxItems": 4}},
        "additionalProperties": False,
    }
    rewards = {
        "type": "object",
        "properties": {
            "clicks": {"type": "number", "minimum": 0, "maximum": 1},
            "minutes": {"type": "number", "minimum": 0, "maximum": 10},
        },
        "minProperties": 1,
        "additionalProperties": False,
    }
    schemas["Feedback"] = {
        "type": "object",
        "required": ["id", "rewards"],
        "properties": {"id": {"type": "string"}, "rewards": rewards},
        "additionalProperties": False,
    }
    return narrow


def test_links_lead_from_decisions_to_feedback(server: Server) -> None:
    before = server.get("/v1/models/router")
    schema = schema_of(server, narrowed(server.get("/openapi.json")))
    machine = schema.as_state_machine()
    seen: list[tuple[str, int]] = []
    outcomes: list[str] = []

    class Machine(machine):  # type: ignore[misc, valid-type]
        def validate_response(self, response: Any, case: Any, **given: Any) -> None:
            seen.append((case.operation.path.rsplit("/", 1)[-1], response.status_code))
            case.validate_response(response, checks=CHECKS)
            if seen[-1] == ("feedback", 200):
                outcomes.extend(entry["outcome"] for entry in response.json())

    Machine.run(settings=settings(BOUNDED, max_examples=RUNS, stateful_step_count=STEPS))
    after = server.get("/v1/models/router")
    assert ("decide", 200) in seen
    assert ("{id}", 200) in seen
    assert "joined" in outcomes  # a link was followed: no other id is known
    assert max(status for _, status in seen) < 500
    assert after["decisions"] > before["decisions"]
    assert after["decisions"] == after["joined"] + after["expired"] + after["open"]
