"""What the interface says of each route: its group, a summary, a description and examples.

`openapi.document` and `GET /docs` are made from it. The examples are of one shop: `router` chooses
among arms, `front` ranks items.
"""

from __future__ import annotations

from typing import Any, NamedTuple

GROUPS = {
    "Decisions": "Ask for a decision, and say later what came of it.",
    "Objective": "Read and replace f, the trade-off between the rewards.",
    "Items": "The items that a ranking can show. They come and go while the service runs.",
    "Numbers": "How it is going: averages, constraints, distance from the best, exposure.",
    "What-if": "What another objective would give, by today's estimates; nothing changes.",
    "Operations": "Health, metrics, snapshots, backups, and this interface.",
    "Page": "The page for people, and its sign-in.",
}


class Entry(NamedTuple):
    """What the interface says of a route; request, reply: examples of the bodies."""

    group: str
    summary: str
    description: str
    request: Any = None
    reply: Any = None


_ID = "a24fd8edbf57bd1d-0-ab782d2afa8d-0"
_NEXT = "a24fd8edbf57bd1d-0-ab782d2afa8d-1"
PARAMETERS = {
    "model": ("The name of a model.", "router"),
    "id": ("An id, as the service gave it.", _ID),
    "key": ("The key of an item.", "sku-3"),
    "name": ("A file of the page.", "style.css"),
    "most": ("At most so many points, evenly over the time.", 100),
    "frames": ("End after so many frames.", 10),
    "If-Match": ("The version that is replaced, as GET objective has it; * for any.", '"0"'),
}

_ROUTER_F = {
    "objective": "Linear({'clicks': 1.0}) + AtMost({'cost': 0.02})",
    "description": "clicks; cost at most 0.02",
    "version": 0,
}
_ROUTER = {
    "name": "router",
    "kind": "arms",
    "t": 63,
    "decisions": 64,
    "open": 1,
    "joined": 61,
    "expired": 2,
    "known": 0,
    "late": 0,
    "unknown": 0,
    "conflict": 0,
    "average": {"clicks": 0.49, "cost": 0.0097},
    "value": 0.49,
    **_ROUTER_F,
    "stopped": None,
    "window": 600.0,
    "missing": "zero",
    "apply": "window",
    "problem": {"n_features": 2, "rewards": {"clicks": [0.0, 1.0], "cost": [0.0, 0.05]}},
    "policy": "FrankWolfe(objective=..., base=SquareCB(gamma0=100.0, ...), ...)",
}
_ITEMS = [
    {"key": "sku-1", "features": [0.6, 0.1]},
    {"key": "sku-2", "features": [0.2, 0.5]},
]
_KNOWN = [{**item, "attributes": {}} for item in _ITEMS]
_RUNNING: dict[str, Any] = {
    "id": "06d9ff9f39f90116",
    "state": "running",
    "message": None,
    "version": 1,
    "t": 60,
    "contexts": 60,
    "asked": 2,
    "points": [],
    "current": "TwoSided(GiniWelfare())",
    "questions": False,
    "reward": "clicks",
    "sharers": "items",
    "curve": [],
    "note": "by today's estimates, not guaranteed",
}
_POINT = {
    "objective": "TwoSided(GiniWelfare())",
    "beta": 1.0,
    "message": None,
    "description": "clicks + fairness of exposure (Gini welfare)",
    "average": {"clicks": 1.24},
    "value": 1.87,
    "lorenz": [0.0, 0.5, 1.0],
    "gini": 0.02,
    "least_half": 0.49,
    "words": "The least shown half of the items gets 49 % of the exposure; ...",
    "utility": 1.24,
    "shared": 0.49,
    "gains": [["sku-2", 0.6, 0.63]],
    "losses": [["sku-3", 0.7, 0.68]],
}

_M = "/v1/models/{model}"
ENTRIES = {
    f"POST {_M}/decide": Entry(
        "Decisions",
        "Make a decision",
        "Give the features of the arms (a row each), of the user, or both, as the model needs. The "
        "reply names an arm, or the items of a ranking, best slot first, with the probability of "
        "the choice. It is in the log before it is answered. `candidates`, `blocked` and `pinned` "
        "restrict the choice; `explain` says why it was made; with the same `request_id` the same "
        "decision comes back, so that a request can be repeated. `closes_in` is of the last stage, "
        "where rewards arrive in `stages`.",
        {"arms": [[0.6, 0.1], [0.2, 0.5]], "request_id": "visit-81"},
        {"id": _ID, "closes_in": 600.0, "probability": 0.5, "arm": 0},
    ),
    f"POST {_M}/decide_many": Entry(
        "Decisions",
        "Make several decisions",
        "Up to 256 requests of `decide` in one; the replies are in their order. Each decision is "
        "open for the next.",
        {"requests": [{"arms": [[0.6, 0.1], [0.2, 0.5]]}, {"arms": [[0.3, 0.3], [0.1, 0.7]]}]},
        [
            {"id": _ID, "closes_in": 600.0, "probability": 0.5, "arm": 0},
            {"id": _NEXT, "closes_in": 600.0, "probability": 0.5, "arm": 1},
        ],
    ),
    f"POST {_M}/feedback": Entry(
        "Decisions",
        "Say what came of decisions",
        "One entry or a list of up to 1,000. Rewards may come in parts until the window of the "
        "decision closes; `final` closes it now. For rankings: `exposed` and `clicked` list items, "
        "`rewards` has numbers by item. The outcome of an entry is joined, known (told before), "
        "late, unknown or conflict; sending it again is safe. Where rewards arrive in stages, each "
        "has its own window: an entry is joined if any of its stages is, and `late`, `known` and "
        "`conflict` list the rewards of the others.",
        [{"id": _ID, "rewards": {"clicks": 1, "cost": 0.01}}],
        [{"id": _ID, "outcome": "joined"}],
    ),
    f"GET {_M}/decisions/{{id}}": Entry(
        "Decisions",
        "Read a decision",
        "A recent decision, its state (open, joined or expired), and what has come for it; with "
        "the state of each stage, where rewards arrive in several.",
        None,
        {
            "id": _ID,
            "state": "open",
            "arm": 0,
            "rewards": {"clicks": 1.0, "cost": 0.01},
            "probability": 0.5,
        },
    ),
    f"GET {_M}/items": Entry(
        "Items", "List the items", "The items that can be shown.", None, {"items": _KNOWN}
    ),
    f"POST {_M}/items": Entry(
        "Items",
        "Add items",
        "Items that are there already with the same features and attributes change nothing; others "
        "are status 409. Attributes are texts by which an objective makes groups of items. Give a "
        "new `objective` too where it lists items. The reply is the number of items.",
        {"items": [*_ITEMS, {"key": "sku-3", "features": [0.4, 0.4]}]},
        {"items": 3},
    ),
    f"DELETE {_M}/items/{{key}}": Entry(
        "Items",
        "Retire an item",
        "It is shown no more. The reply is the number of items that are left.",
        None,
        {"items": 2},
    ),
    f"GET {_M}/objective": Entry(
        "Objective",
        "Read the objective",
        "As text and in words. The version counts the replacements; it is the ETag too.",
        None,
        _ROUTER_F,
    ),
    f"PUT {_M}/objective": Entry(
        "Objective",
        "Replace the objective",
        "The text is the Python expression of the objective: classes such as `Linear(...)`, `f + "
        "g`, `0.5 * f`, `f.on('clicks')`. It is read without running code and tried "
        "first. What was learnt stays, and the next decision follows the new objective. Another "
        "version than `If-Match` is status 412.",
        {"objective": "Linear({'clicks': 1.0}) + AtMost({'cost': 0.03})"},
        {
            "objective": "Linear({'clicks': 1.0}) + AtMost({'cost': 0.03})",
            "description": "clicks; cost at most 0.03",
            "version": 1,
        },
    ),
    f"GET {_M}/changes": Entry(
        "Objective",
        "List the changes of the objective",
        "Who replaced the objective, when, and by what; the newest first.",
        None,
        {
            "changes": [
                {
                    "version": 1,
                    "who": "owner",
                    "when": 1795034393.97,
                    "from": _ROUTER_F["objective"],
                    "to": "Linear({'clicks': 1.0}) + AtMost({'cost': 0.03})",
                    "from_words": "clicks; cost at most 0.02",
                    "to_words": "clicks; cost at most 0.03",
                }
            ]
        },
    ),
    f"GET {_M}/constraints": Entry(
        "Numbers",
        "Read the hard constraints",
        "How each is kept, and its shadow price: what one more unit would buy of f.",
        None,
        {
            "constraints": [
                {
                    "name": "cost",
                    "level": 0.02,
                    "average": 0.0097,
                    "slack": 0.0103,
                    "shadow_price": 0.0,
                    "feasible": None,
                    "side": "at most",
                    "sentence": "cost is 0.0097, to be at most 0.02: kept, with 0.01 to spare; ...",
                }
            ]
        },
    ),
    f"GET {_M}/live": Entry(
        "Numbers",
        "Read how far f is from the best",
        "f of the averages, the best that can be reached about (with an interval), and what it is "
        "at most, with the confidence; in a sentence too.",
        None,
        {
            "t": 5000,
            "value": 0.6012,
            "about": 0.6215,
            "low": 0.6101,
            "high": 0.6342,
            "at_most": 0.6604,
            "decisions": 2500,
            "delta": 0.05,
            "confidence": 0.9,
            "reason": "",
            "warning": "",
            "sentence": "After 5,000 decisions f is 0.6012. ...",
            "stages": 1,
        },
    ),
    f"GET {_M}/history": Entry(
        "Numbers",
        "Read how it went",
        "Averages, f and the live numbers over time.",
        None,
        {
            "points": [
                {
                    "clock": 2.0,
                    "wall": 1795034387.83,
                    "t": 21,
                    "version": 0,
                    "value": 0.476,
                    "average": {"clicks": 0.476, "cost": 0.009},
                    "at_most": None,
                    "about": None,
                    "low": None,
                    "high": None,
                    "gini": None,
                }
            ]
        },
    ),
    f"GET {_M}/exposure": Entry(
        "Numbers",
        "Read who is exposed",
        "Of a ranking: the Lorenz curve, the Gini index, the items at either end, the groups of "
        "the objective, and the curve of a day ago.",
        None,
        {
            "items": 3,
            "lorenz": [0.0, 0.49, 1.0],
            "gini": 0.017,
            "least_half": 0.49,
            "words": "The least shown half of the items gets 49 % of the exposure; ...",
            "least": [{"key": "sku-2", "exposure": 0.63}],
            "most": [{"key": "sku-3", "exposure": 0.68}],
            "earlier": {"seconds_ago": 86400.0, "gini": 0.02, "lorenz": [0.0, 0.48, 1.0]},
        },
    ),
    f"GET {_M}/stream": Entry(
        "Numbers",
        "Listen to the numbers",
        "Server-sent events: a frame a second with the numbers of the page.",
        None,
        'data: {"model": "router", "t": 63, "value": 0.49, ...}\n\n',
    ),
    "GET /v1/models": Entry(
        "Numbers", "List the models", "Every model in numbers.", None, {"models": [_ROUTER]}
    ),
    f"GET {_M}": Entry(
        "Numbers",
        "Read a model",
        "Its numbers, objective and settings. `decisions = joined + expired + open`, always; `t` "
        "is how many were learnt from. Where rewards arrive in stages, `stages` has the same of "
        "each, and these are of the last.",
        None,
        _ROUTER,
    ),
    f"POST {_M}/what-if": Entry(
        "What-if",
        "Ask what another objective would give",
        "Give values of `beta`, the weight of the items, or up to five `objectives` as text; "
        "nothing gives a range around the current beta. It is computed in the background: ask for "
        "the result by its id.",
        {"beta": [0.5, 1.0]},
        _RUNNING,
    ),
    f"GET {_M}/what-if/{{id}}": Entry(
        "What-if",
        "Read the result of a what-if",
        "The points so far: for each objective the best averages, by today's estimates, and who "
        "gains and loses most against the current one. The curve has utility, fairness, the Gini "
        "index and the share of the least shown half, from the most utility to the fairest. The "
        "state is running, done or failed.",
        None,
        {**_RUNNING, "state": "done", "asked": 1, "points": [_POINT]},
    ),
    f"POST {_M}/what-if/{{id}}/questions": Entry(
        "What-if",
        "Find your beta by questions",
        "Send the answers so far (a, b or equal); the reply has the next question between two "
        "trade-offs of the what-if, and the beta that the answers imply.",
        {"answers": ["a"]},
        {
            "done": False,
            "question": {"a": {"utility": 1.31}, "b": {"utility": 1.24}},
            "beta": 0.7,
            "low": 0.5,
            "high": 1.0,
            "sentences": ["..."],
        },
    ),
    "GET /healthz": Entry(
        "Operations", "Is it alive?", "The process answers.", None, {"alive": True}
    ),
    "GET /readyz": Entry(
        "Operations",
        "Is it ready?",
        "Status 503 while it cannot decide durably, with the reason.",
        None,
        {"ready": True, "replayed": 0},
    ),
    "GET /metrics": Entry(
        "Operations",
        "Read the metrics",
        "In the text format of Prometheus.",
        None,
        "# TYPE fairwolfe_decisions_total counter\n"
        'fairwolfe_decisions_total{model="router"} 63.0\n',
    ),
    "GET /openapi.json": Entry(
        "Operations",
        "Read this interface",
        "The OpenAPI document, for tools.",
        None,
        {"openapi": "3.1.0", "info": {"title": "fairwolfe"}, "paths": {}},
    ),
    "GET /docs": Entry(
        "Operations",
        "Read this interface as a page",
        "The same for people.",
        None,
        "<!doctype html> ...",
    ),
    "POST /v1/admin/snapshot": Entry(
        "Operations",
        "Take a snapshot",
        "It makes the next start fast. The reply is the row of the log that it covers.",
        None,
        {"seq": 320},
    ),
    "GET /v1/admin/backup": Entry(
        "Operations",
        "Download a backup",
        "The whole log as one SQLite file, while the service decides; `fairwolfe log restore` "
        "reads it.",
        None,
        "SQLite format 3 ...",
    ),
    "GET /": Entry(
        "Page",
        "Open the page",
        "The numbers of a model for people, kept alive by the stream.",
        None,
        "<!doctype html> ...",
    ),
    "GET /page/{name}": Entry(
        "Page", "Read a file of the page", "Its style and scripts.", None, ":root { ... }"
    ),
    "POST /sign-in": Entry(
        "Page",
        "Sign in",
        "With a key that may read; the browser then shows a cookie that may only read, for 12 "
        "hours.",
        "key=fw_...",
        "",
    ),
    "POST /sign-out": Entry("Page", "Sign out", "Ends the session.", None, "<!doctype html> ..."),
}
