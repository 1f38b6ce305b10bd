"""`GET /docs`: the OpenAPI document as HTML, for people. It has no script."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

_WIDE = 96  # characters of a line of JSON

Node = dict[str, Any]


def places(document: Node, url: str, keys: bool) -> dict[str, str]:
    """What `docs.html` shows; url: of the service; keys: whether it asks for any."""
    groups = {tag["name"]: tag["description"] for tag in document["tags"]}
    routes: dict[str, list[tuple[str, str, Node]]] = {name: [] for name in groups}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            routes[operation["tags"][0]].append((method.upper(), path, operation))
    return {
        "version": html.escape(document["info"]["version"]),
        "url": html.escape(url),
        "keys": "" if keys else "hidden",
        "contents": "".join(map(_contents, groups, routes.values())),
        "groups": "".join(
            f'<section aria-labelledby="{_anchor(name)}"><h2 id="{_anchor(name)}">{name}</h2>'
            f'<p class="lead">{_text(words)}</p>'
            + "".join(_route(document, *one) for one in routes[name])
            + "</section>"
            for name, words in groups.items()
        ),
    }


def _contents(group: str, routes: list[tuple[str, str, Node]]) -> str:
    lines = (
        f'<li><a href="#{operation["operationId"]}">{html.escape(operation["summary"])}</a></li>'
        for _, _, operation in routes
    )
    return f'<p><a href="#{_anchor(group)}">{group}</a></p><ul>{"".join(lines)}</ul>'


def _anchor(group: str) -> str:
    return f"g-{group.lower()}"


def _route(document: Node, method: str, path: str, operation: Node) -> str:
    """A route whole."""
    done = {code: one for code, one in operation["responses"].items() if code < "400"}
    ((code, reply),) = done.items()
    example = _first(reply["content"]).get("example")
    who = {"open": "no key on this machine", "anyone": "no key"}
    scope = who.get(operation["x-scope"], f"scope {operation['x-scope']}")
    parts = [
        f'<p class="route"><span class="method {method.lower()}">{method}</span> '
        f"<code>{_breakable(path)}</code></p>",
        f"<p>{_text(operation['description'])}</p>",
        _fields("Parameters", _parameters(operation)),
        _fields("Body", _body(document, operation)),
        _code("Request", _curl(method, path, operation)),
        _code(f"Reply, status {code}", _json(example)) if example else "",
        _refusals(operation),
    ]
    return (
        f'<article id="{operation["operationId"]}"><h3>'
        f'<a href="#{operation["operationId"]}">{html.escape(operation["summary"])}</a> '
        f'<span class="scope">{scope}</span></h3>{"".join(parts)}</article>'
    )


def _first(content: Node) -> Node:
    """What is said of the first media type."""
    one: Node = next(iter(content.values()))
    return one


def _text(words: str) -> str:
    """Words as HTML, with code between backquotes."""
    parts = html.escape(words).split("`")
    return "".join(f"<code>{one}</code>" if i % 2 else one for i, one in enumerate(parts))


def _breakable(path: str) -> str:
    """A path that may break after each slash."""
    return html.escape(path).replace("/", "/<wbr>")


def _code(caption: str, text: str) -> str:
    """A block of code; a long line is scrolled."""
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<pre tabindex="0"><code>{html.escape(text)}</code></pre></figure>'
    )


def _fields(caption: str, rows: Iterable[tuple[str, str, str]]) -> str:
    """A table of names, types and words."""
    lines = "".join(
        f'<tr><th scope="row"><code>{html.escape(name)}</code></th><td>{html.escape(kind)}</td>'
        f"<td>{_text(words)}</td></tr>"
        for name, kind, words in rows
    )
    return f'<table class="fields"><caption>{caption}</caption>{lines}</table>' if lines else ""


def _parameters(operation: Node) -> Iterator[tuple[str, str, str]]:
    where = {"path": "in the path", "query": "in the query", "header": "a header"}
    for one in operation.get("parameters", ()):
        yield one["name"], where[one["in"]], one["description"]


def _body(document: Node, operation: Node) -> Iterator[tuple[str, str, str]]:
    """The fields of the body."""
    if "requestBody" not in operation:
        return
    schema = _resolved(document, _first(operation["requestBody"]["content"])["schema"])
    for one in schema.get("anyOf", ()):  # one entry, or several
        schema = _resolved(document, one)
        if "properties" in schema:
            break
    for name, field in schema.get("properties", {}).items():
        needed = "required" if name in schema.get("required", ()) else ""
        yield name, _kind(document, field), needed


def _resolved(document: Node, schema: Node) -> Node:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Node = document["components"]["schemas"][name] if name else schema
    return found


def _kind(document: Node, schema: Node, many: bool = False) -> str:
    """The type of a value in words."""
    if "anyOf" in schema:
        kinds = (_kind(document, one, many) for one in schema["anyOf"] if one.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if "$ref" in schema:
        listed = ", ".join(_resolved(document, schema).get("properties", {}))
        return f"objects with {listed}" if many else f"an object with {listed}"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        known = [one for one in kind if one != "null"]
        return " or ".join(_kind(document, {**schema, "type": one}, many) for one in known)
    if kind == "array":
        inner = _kind(document, schema.get("items") or {}, many=True)
        return f"{'lists' if many else 'a list'} of {inner}"
    if kind == "object":
        named = schema.get("additionalProperties")
        of = _kind(document, named, many=True) if isinstance(named, dict) else "values"
        return f"{'objects' if many else 'an object'} of {of}"
    names = {"number": "number", "integer": "whole number", "string": "text", "any": "value"}
    if kind == "boolean":
        return "true or false"
    name = names[kind]
    return f"{name}s" if many else f"a {name}"


def _curl(method: str, path: str, operation: Node) -> str:
    """The request as a command."""
    for one in operation.get("parameters", ()):
        path = path.replace(f"{{{one['name']}}}", str(one["example"]))
    words = ["curl"] + (["-X", method] if method not in ("GET", "POST") else [])
    more = [
        f"-H {shlex.quote(one['name'] + ': ' + one['example'])}"
        for one in operation.get("parameters", ())
        if one["in"] == "header"
    ]
    if "requestBody" in operation:
        media = next(iter(operation["requestBody"]["content"]))
        given = operation["requestBody"]["content"][media]["example"]
        if isinstance(given, str):
            more.append(f"-d {shlex.quote(given)}")
        else:
            more.append(f"-H 'content-type: {media}'")
            more.append(f"-d {shlex.quote(_json(given))}")
    elif method == "POST":
        words += ["-X", method]
    if operation["security"] and operation["x-scope"] != "anyone":
        more.insert(0, '-H "authorization: Bearer $KEY"')
    return " \\\n  ".join([" ".join([*words, f'"$URL{path}"']), *more])


def _refusals(operation: Node) -> str:
    """The statuses of errors."""
    lines = (
        f'<tr><th scope="row">{code}</th><td>{html.escape(one["description"])}</td></tr>'
        for code, one in operation["responses"].items()
        if code >= "400"
    )
    return f"<details><summary>Errors</summary><table>{''.join(lines)}</table></details>"


def _json(value: Any, indent: int = 0) -> str:
    """JSON whose parts are on one line where they fit.

    >>> print(_json({"a": [1, 2], "b": {}}))
    {"a": [1, 2], "b": {}}
    """
    if isinstance(value, str) and not indent:
        return value
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= _WIDE or not isinstance(value, (dict, list)) or not value:
        return line
    space = " " * (indent + 2)
    names = value if isinstance(value, dict) else range(len(value))
    inner = ",\n".join(
        space
        + (f"{json.dumps(name)}: " if isinstance(value, dict) else "")
        + _json(value[name], indent + 2)
        for name in names
    )
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{inner}\n{' ' * indent}{right}"
