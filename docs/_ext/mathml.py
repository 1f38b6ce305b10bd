"""Formulas as MathML, made when the site is built: readers need no script and no network."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def mathml(latex: str, display: str = "inline") -> str:
    """A formula as MathML; what is not understood is not passed on, but raised.

    >>> mathml("x^2").startswith("<math")
    True
    """
    found = convert(latex, display=display).replace("\\_", "_")
    if "\\" in found:
        raise ValueError(f"no MathML for a part of the formula {latex!r}: {found}")
    return found


def _html(node: Any, display: str) -> str:
    try:
        return mathml(node.astext(), display)
    except Exception as error:
        logger.warning("%s", error, location=node)
        return ""


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(_html(node, "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{_html(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
