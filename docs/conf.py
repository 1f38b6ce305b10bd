"""Sphinx configuration: MyST pages, formulas, and the numbered examples as a gallery."""

from __future__ import annotations

from importlib.metadata import version as version_of
from pathlib import Path

project = "fairwolfe"
author = "The fairwolfe authors"
project_copyright = author
release = version_of("fairwolfe")
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = False

html_theme = "furo"
html_title = "fairwolfe"

examples = Path(__file__).parents[1] / "examples"
if any(examples.glob("[0-9]*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": str(examples),
        "gallery_dirs": "gallery",
        "filename_pattern": r"[/\\]\d",
        "within_subsection_order": "FileNameSortKey",
        "abort_on_example_error": True,
    }
