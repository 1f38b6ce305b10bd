"""Pages of HTML from templates: what is not markup of the template is text, and escaped.

No script, nothing from elsewhere: the file can be sent, kept and opened without a network.
"""

from __future__ import annotations

from typing import Any

from fairwolfe.errors import require_extra

__all__ = ["render"]


def render(package: str, template: str, **values: Any) -> str:
    """A template in the folder `pages` of a package, which may use `base.html` and `parts.html`
    of the lab.
    """
    require_extra("lab", "a page", "jinja2")
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one, "pages") for one in (package, __package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(values) + "\n"
