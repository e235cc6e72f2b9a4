"""How what alta returns is shown in a notebook."""

from __future__ import annotations


class Displayed:
    """What notebooks show as HTML, which `alta.show` makes of it. That is above everything that can be shown, so it is
    imported only then."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from alta.show.notebook import html

        return html(self)
