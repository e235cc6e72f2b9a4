"""What there is to show of a thing, before it becomes text or HTML: a title, and sections of tables and lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table, marked if it has changed or matters more than the others."""

    text: str
    marked: bool = False


@dataclass(frozen=True)
class Section:
    """A table under a heading. `numbers` are the columns that hold numbers, which are set to the right; `left_out` says
    what is not shown. A table without a heading of its own goes on from the one before."""

    heading: str
    rows: Sequence[Sequence[Cell | str]]
    header: Sequence[str] = ()
    numbers: frozenset[int] = field(default=frozenset())
    left_out: str = ""


@dataclass(frozen=True)
class Report:
    """A title, and sections."""

    title: str
    sections: tuple[Section, ...]


def first(rows: Sequence[Sequence[Cell | str]], most: int, what: str) -> tuple[Sequence[Sequence[Cell | str]], str]:
    """The first rows, and a note of how many are left out."""
    if len(rows) <= most:
        return rows, ""
    return rows[:most], f"{len(rows) - most:,} more {what} are not shown"
