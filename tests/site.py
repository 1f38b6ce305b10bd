"""Reading a built site: what its pages link to, what they load, what a reader sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

# Attributes that make a browser fetch something at once, by tag.
LOADED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
}
# What a <link> only mentions, and no browser fetches for it.
MENTIONED = {"author", "canonical", "help", "index", "license", "next", "prev", "search", "top"}
UNREAD = {"code", "math", "pre", "script", "style", "svg"}
URL = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
# A formula that was left as it was written: $x$, \(x\), \[x\], or a command such as \frac.
LATEX = re.compile(r"\$[^\s$](?:[^$\n]*[^\s$])?\$|\\[(\[]|\\[A-Za-z]{2,}")


class Page(HTMLParser):
    """The ids, the links, what is loaded and what is read of one page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given and tag != "meta"}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and not MENTIONED & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        for name in LOADED.get(tag, ()):
            if name in given:
                self.loads += [part.split()[0] for part in given[name].split(", ")]
        self.loads += styled(given.get("style", ""))
        if tag in UNREAD:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if not self._open:
            self.text.append(data)
        elif self._open[-1] == "style":
            self.loads += styled(data)


def styled(css: str) -> list[str]:
    """What a style sheet loads."""
    return [one or other for one, other in URL.findall(css)]


class Site:
    """All pages of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.page = cache(Page)

    def pages(self) -> list[Path]:
        return sorted(self.folder.rglob("*.html"))

    def name(self, file: Path) -> str:
        return file.relative_to(self.folder).as_posix()

    def broken(self) -> Iterator[str]:
        """Links and loads that lead to no file, or to an id that its page does not have."""
        for file in self.pages():
            page = self.page(file)
            for address in (*page.links, *page.loads):
                if not foreign(address) and not self.found(file, address):
                    yield f"{self.name(file)}: {address}"

    def found(self, file: Path, address: str) -> bool:
        parts = urlsplit(address)
        target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        if not target.is_file() or not target.is_relative_to(self.folder):
            return False
        if not parts.fragment or target.suffix != ".html":
            return True
        return unquote(parts.fragment) in self.page(target).ids

    def loaded_from_elsewhere(self) -> Iterator[str]:
        """What pages and style sheets load from another origin."""
        for file in self.pages():
            for address in self.page(file).loads:
                if foreign(address) and not address.startswith("data:"):
                    yield f"{self.name(file)}: {address}"
        for file in sorted(self.folder.rglob("*.css")):
            for address in styled(file.read_text(encoding="utf-8")):
                if foreign(address) and not address.startswith("data:"):
                    yield f"{self.name(file)}: {address}"

    def raw_formulas(self) -> Iterator[str]:
        """Formulas that a reader would see as LaTeX."""
        for file in self.pages():
            for match in LATEX.finditer("".join(self.page(file).text)):
                yield f"{self.name(file)}: {match[0]}"


class Step(NamedTuple):
    """Commands of a page, and what they print where the page says it."""

    commands: str
    printed: str | None


def foreign(address: str) -> bool:
    """Whether an address has a scheme or a host of its own."""
    parts = urlsplit(address)
    return bool(parts.scheme or parts.netloc)
