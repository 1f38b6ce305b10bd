"""A page of HTML from parts that escape themselves: what is no `Html` is text.

No script, nothing from elsewhere: the file can be sent, kept and opened without a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fairwolfe.lab.figures import Picture

__all__ = ["Html", "bullets", "figure", "page", "table", "tag"]


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *content: str, **attributes: str) -> Html:
    """An element. Attributes are given as ``class_="plain"``, with ``_`` for ``-``.

    >>> tag("p", "1 < 2", tag("b", "!"), class_="plain")
    '<p class="plain">1 &lt; 2<b>!</b></p>'
    """
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    inside = "".join(part if isinstance(part, Html) else escape(part) for part in content)
    return Html(f"<{name}{named}>{inside}</{name}>")


def bullets(sentences: Iterable[str]) -> Html:
    """A list."""
    return tag("ul", *(tag("li", sentence) for sentence in sentences))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1) -> Html:
    """The first `text` columns are text, the others numbers; the first names its row.

    On a narrow screen the table scrolls, not the page.
    """
    kinds = ["" if i < text else "number" for i in range(len(head))]

    def cell(i: int, value: str) -> Html:
        if i == 0:
            return tag("th", value, scope="row")
        return tag("td", value, class_=kinds[i]) if kinds[i] else tag("td", value)

    top = tag(
        "tr",
        *(tag("th", name, scope="col", class_=kinds[i]) for i, name in enumerate(head)),
    )
    body = [tag("tr", *(cell(i, value) for i, value in enumerate(row))) for row in rows]
    whole = tag(
        "table", tag("caption", tag("span", caption)), tag("thead", top), tag("tbody", *body)
    )
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def figure(picture: Picture) -> Html:
    """A picture drawn into the page, with its words for those who cannot see it."""
    svg = picture.inline()
    start = svg.index(">", svg.index("<svg")) + 1
    opening = f'<svg role="img" aria-labelledby="{escape(picture.name)}-alt"'
    words = tag("title", picture.alt, id=f"{picture.name}-alt")
    drawn = Html(svg[:start].replace("<svg", opening, 1) + words + svg[start:])
    return tag("figure", drawn, tag("figcaption", picture.caption))


def page(title: str, *parts: Html) -> str:
    """The whole file."""
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", Html(_STYLE)),
    )
    body = tag("body", tag("main", *parts))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


# Colours have a contrast of at least 7 to 1 for text in both schemes.
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #4a4a4a; --paper: #ffffff;
  --line: #c9c9c9; --tint: #f4f4f2; --link: #00508a; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --soft: #bdbdbd; --paper: #161616;
  --line: #4a4a4a; --tint: #222222; --link: #8cc8ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 84rem; margin: 0 auto; padding: 1rem clamp(0.9rem, 3vw, 3rem) 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 1rem 0 0.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 0.5rem; overflow-wrap: anywhere;
  border-top: 1px solid var(--line); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
.lead { color: var(--soft); margin-top: 0; }
.figures { display: grid; gap: 1.2rem 2rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.wide { grid-template-columns: 1fr; }
.wide figure { max-width: 70rem; }
figure { margin: 0.6rem 0; max-width: 34rem; min-width: 0; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
figure svg text { fill: var(--ink); }
figcaption { color: var(--soft); font-size: 0.88rem; margin-top: 0.3rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; max-width: 100%; margin: 0.8rem 0; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: 0.92rem; }
caption { text-align: left; color: var(--soft); padding-bottom: 0.3rem; }
caption span { display: block; max-width: min(46rem, calc(100vw - 2.2rem)); }
th, td { padding: 0.32rem 0.9rem 0.32rem 0; text-align: left; vertical-align: baseline;
  border-bottom: 1px solid var(--line); }
thead th { border-bottom: 2px solid var(--soft); white-space: nowrap; }
tbody th { font-weight: 600; min-width: 8.5rem; max-width: 22rem;
  overflow-wrap: break-word; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { background: var(--tint); padding: 0.8rem 1rem; overflow-x: auto; font-size: 0.84rem;
  border-radius: 4px; max-width: 100%; }
details { margin: 0.5rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
@media print { .scroll, pre { overflow: visible; } pre { white-space: pre-wrap; } }
"""
