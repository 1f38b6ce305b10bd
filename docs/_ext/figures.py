"""Figures that scroll inside themselves where a screen is too narrow for their words.

A figure of two panels that is shrunk to the width of a telephone cannot be read. So every figure is
put into a box of the class ``figure-box``; the style sheet gives it a least width there.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


def is_figure(node: nodes.Node) -> bool:
    """An image of its natural size, and not a picture of a screen."""
    if not isinstance(node, nodes.Element):
        return False
    if isinstance(node, nodes.image):
        return not node.get("width") and "as-is" not in node["classes"]
    return node.tagname == "imgsgnode"  # what sphinx-gallery makes


def box(app: Sphinx, tree: nodes.document) -> None:
    for image in [node for node in tree.findall(nodes.Element) if is_figure(node)]:
        parent = image.parent
        if isinstance(parent, nodes.paragraph) and len(parent) == 1:
            parent["classes"].append("figure-box")
        elif isinstance(parent, nodes.section):
            parent.replace(image, nodes.container("", image, classes=["figure-box"]))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", box)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
