"""Sphinx configuration: MyST pages, formulas as MathML, the API, the examples as a gallery.

``sphinx-build -D plot_gallery=0 ...`` leaves the examples unexecuted: some seconds, not minutes.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "fairwolfe"
author = "The fairwolfe authors"
project_copyright = author
release = version_of("fairwolfe")
version = release

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "commands",
    "docstrings",
    "figures",
    "mathml",
    "public",
]
exclude_patterns = ["_build", "sg_execution_times.rst", "gallery/sg_execution_times.rst"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# What stands between single back quotes in a docstring is a name, linked where it is public.
default_role = "py:obj"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
python_display_short_literal_types = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "fairwolfe"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_domain_indices = False

examples = HERE.parent / "examples"
if any(examples.glob("[0-9]*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": str(examples),
        "gallery_dirs": "gallery",
        "filename_pattern": r"[/\\]\d",
        "within_subsection_order": "FileNameSortKey",
        "abort_on_example_error": True,
        "image_srcset": ["2x"],
        "show_memory": False,
        "write_computation_times": False,
    }
