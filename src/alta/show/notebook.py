"""A report as HTML for a notebook. Colours are those of the page, dark or light; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from alta.show.describe import describe
from alta.show.report import Cell, Section
from alta.terminal import printable

STYLE = """
.alta { color: inherit; line-height: 1.35; }
.alta .title { font-family: monospace; margin-bottom: 0.4em; }
.alta .table { overflow-x: auto; margin-bottom: 0.8em; }
.alta table { border-collapse: collapse; margin: 0; font-size: 90%; }
.alta caption { text-align: left; font-weight: bold; caption-side: top; color: inherit; padding: 0.2em 0.45em; }
.alta th, .alta td { text-align: left; vertical-align: top; padding: 0.15em 0.45em; white-space: pre-wrap;
  color: inherit; background: transparent; border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.25); }
.alta .number { text-align: right; font-variant-numeric: tabular-nums; }
.alta td.marked { font-weight: bold; background: rgba(86, 180, 233, 0.28); }
.alta .left-out { font-style: italic; opacity: 0.75; }
"""


def html(thing: object) -> str:
    """What notebooks show of a thing."""
    report = describe(thing)
    parts = [f'<div class="title">{_text(report.title)}</div>', *map(_section, report.sections)]
    return f'<div class="alta"><style>{STYLE}</style>{"".join(parts)}</div>'


def _section(section: Section) -> str:
    caption = f"<caption>{_text(section.heading)}</caption>" if section.heading else ""
    head = f"<thead><tr>{''.join(_headers(section))}</tr></thead>" if any(section.header) else ""
    rows = "".join(f"<tr>{''.join(_cells(row, section.numbers))}</tr>" for row in section.rows)
    left_out = f'<div class="left-out">{_text(section.left_out)}</div>' if section.left_out else ""
    return f'<div class="table"><table>{caption}{head}<tbody>{rows}</tbody></table>{left_out}</div>'


def _headers(section: Section) -> Iterator[str]:
    for column, name in enumerate(section.header):
        yield f'<th scope="col"{_classes(section.numbers, column)}>{_text(name)}</th>'


def _cells(row: Sequence[Cell | str], numbers: frozenset[int]) -> Iterator[str]:
    for column, cell in enumerate(row):
        text, marked = (cell.text, cell.marked) if isinstance(cell, Cell) else (cell, False)
        yield f"<td{_classes(numbers, column, marked)}>{_text(text)}</td>"


def _classes(numbers: frozenset[int], column: int, marked: bool = False) -> str:
    found = [name for name, there in (("number", column in numbers), ("marked", marked)) if there]
    return f' class="{" ".join(found)}"' if found else ""


def _text(text: str) -> str:
    return escape(printable(text))
