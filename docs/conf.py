"""How the site is built from these pages: `make docs`."""

from __future__ import annotations

import inspect
import re
from typing import Any

import alta

project = "alta"
version = release = alta.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]

html_theme = "furo"
html_title = f"alta {release}"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
highlight_language = "text"  # of what a block prints
pygments_style = "friendly"
pygments_dark_style = "github-dark"
myst_heading_anchors = 3

default_role = "code"  # a name between single backticks, in docstrings as in Markdown
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("Array", "Cell", "Context", "State", "Token", "Value")}

PUBLIC = {
    f"{thing.__module__}.{thing.__qualname__}": f"alta.{name}"
    for name in alta.__all__
    if inspect.isclass(thing := getattr(alta, name))
}
"""The public names of classes, by where they are defined, which is what annotations name."""


def add_contents(_: Any, page: str, source: list[str]) -> None:
    """What the front page lists under a heading is the navigation."""
    if page != "index":
        return
    for heading, text in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", source[0], re.MULTILINE):
        pages = "\n".join(re.findall(r"\]\((\w+)\.(?:md|rst)\)", text))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n"


def link_public(app: Any, env: Any, node: Any, text: Any) -> Any:
    """Annotations link to the reference."""
    target = PUBLIC.get(node.get("reftarget"))
    return target and env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, "class", target, node, text)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("missing-reference", link_public)
