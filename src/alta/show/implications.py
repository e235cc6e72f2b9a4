"""Rules as implications that can be read down: those of one variable together, with their arrows under each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from alta.language.rules import Rule, Trap
from alta.language.variables import format_value
from alta.terminal import columns, pad, paint, printable, wrap

INDENT = "    "


def implications(entries: Iterable[Rule | Trap], *, width: int | None = None, color: bool = False) -> Iterator[str]:
    """Lines for rules and traps, in the order given. One that does not fit `width` goes on in the lines below.

    Without a width, each is one line, as `str` has it.
    """
    if width is None:
        yield from (_line(" ∧ ".join(_antecedent(entry)), entry, color) for entry in entries)
        return
    for _, group in groupby(entries, key=lambda entry: entry.output if isinstance(entry, Rule) else None):
        found = [(entry, _antecedent(entry)) for entry in group]
        lengths = [columns(" ∧ ".join(left)) for entry, left in found if _fits(entry, left, width)]
        arrow = max(lengths, default=0)
        for entry, left in found:
            if _fits(entry, left, width):
                room = min(arrow, width - 3 - columns(_consequence(entry)))
                yield _line(pad(" ∧ ".join(left), room), entry, color)
            else:
                yield from wrap([*(f"{constraint} ∧" for constraint in left[:-1]), left[-1]], width, INDENT)
                for line in wrap(["⟹", *_consequence(entry).split()], width - len(INDENT), "  "):
                    yield INDENT + paint(line, _style(entry), color)


def _antecedent(entry: Rule | Trap) -> list[str]:
    return [printable(str(constraint)) for constraint in entry.antecedent] or ["always"]


def _consequence(entry: Rule | Trap) -> str:
    return printable(entry.reason if isinstance(entry, Trap) else f"{entry.output} := {format_value(entry.new)}")


def _fits(entry: Rule | Trap, left: list[str], width: int) -> bool:
    return columns(" ∧ ".join(left)) + 3 + columns(_consequence(entry)) <= width


def _line(left: str, entry: Rule | Trap, color: bool) -> str:
    return f"{left} ⟹ {paint(_consequence(entry), _style(entry), color)}"


def _style(entry: Rule | Trap) -> str:
    return "bad" if isinstance(entry, Trap) else "faint" if entry.is_reset else "changed"
