"""Formulas as MathML, made when the site is built: readers need no script and no network."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
LETTER = re.compile(r"\\(math[a-z]+)\s+(\w)")
LIMITS = {"inf", "max", "min", "sup"}
BELOW = {"msub": "munder", "msubsup": "munderover", "msup": "mover"}
FUNCTIONS = {"det", "exp", "ln", "log"}
TIGHT = {"|", "‖", "/"}  # browsers leave room around them, as around a plus
VARIANTS = {"bold", "monospace", "normal"}  # which browsers or our style sheet know


def mathml(latex: str, display: str = "inline") -> str:
    """A formula as MathML; what a browser would not understand is raised.

    >>> mathml("x^2").startswith("<math")
    True
    """
    found = convert(LETTER.sub(r"\\\1{\2}", latex), display=display).replace("\\_", "_")
    tree = ElementTree.fromstring(found)
    for part in tree.iter():
        tag = part.tag.removeprefix(f"{{{NAMESPACE}}}")
        if "\\" in (part.text or "") or part.get("mathvariant", "normal") not in VARIANTS:
            raise ValueError(f"no MathML for a part of the formula {latex!r}: {found}")
        if tag == "mo" and part.text in TIGHT:
            part.attrib = {"stretchy": "false"} | part.attrib | {"lspace": "0", "rspace": "0"}
        if part.text in FUNCTIONS:
            part.tag = f"{{{NAMESPACE}}}mo"
            part.attrib |= {"lspace": "0.167em", "rspace": "0.083em"}
        if display == "block" and tag in BELOW and part[0].text in LIMITS:
            part.tag = f"{{{NAMESPACE}}}{BELOW[tag]}"
    ElementTree.register_namespace("", NAMESPACE)
    return ElementTree.tostring(tree, encoding="unicode")


def html(node: Any, display: str) -> str:
    try:
        return mathml(node.astext(), display)
    except Exception as error:
        logger.warning("%s", error, location=node)
        return ""


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(html(node, "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{html(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
