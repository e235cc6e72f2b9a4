"""A report as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alta.show.report import Cell, Report, Section
from alta.terminal import columns, pad, paint, printable, widest, wrap

GAP = "  "


def text(report: Report, *, width: int | None = None, color: bool = False) -> str:
    """The report. The last column of a table goes on below itself where it does not fit `width`."""
    lines = [paint(line, "title", color) for line in wrap(printable(report.title).split(" "), width, GAP)]
    for section in report.sections:
        lines += ["", *_section(section, width, color)]
    return "\n".join(lines)


def _section(section: Section, width: int | None, color: bool) -> Iterator[str]:
    rows = [[_cell(cell) for cell in row] for row in section.rows]
    header = list(section.header) or [""] * max(map(len, rows), default=0)
    if section.heading and header:
        header[0] = section.heading
    every = [header, *([cell.text for cell in row] for row in rows)]
    widths = [widest(row[column] for row in every if column < len(row)) for column in range(len(header))]
    if any(header):
        yield paint(_aligned(header, widths, section.numbers).rstrip(), "title", color)
    for row in rows:
        yield from _row(row, widths, section, width, color)
    if section.left_out:
        yield paint(f"({section.left_out})", "faint", color)


def _row(row: Sequence[Cell], widths: Sequence[int], section: Section, width: int | None, color: bool) -> Iterator[str]:
    *front, last = row
    before = _aligned([cell.text for cell in front], widths, section.numbers)
    before += GAP if front else ""
    indent = columns(before)
    room = None if width is None else max(width - indent, 20)
    if len(front) in section.numbers:
        lines = [_aligned([cell.text for cell in row], widths, section.numbers)[len(before) :]]
    else:
        lines = wrap(last.text.split(" "), room, GAP)
    for number, line in enumerate(lines):
        yield (before if number == 0 else " " * indent) + paint(line, "changed", color and last.marked)


def _aligned(texts: Sequence[str], widths: Sequence[int], numbers: frozenset[int]) -> str:
    parts = [
        " " * (widths[column] - columns(one)) + one if column in numbers else pad(one, widths[column])
        for column, one in enumerate(texts)
    ]
    return GAP.join(parts)


def _cell(cell: Cell | str) -> Cell:
    return Cell(printable(cell.text), cell.marked) if isinstance(cell, Cell) else Cell(printable(cell))
