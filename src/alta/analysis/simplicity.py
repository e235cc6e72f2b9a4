"""How simple programs are, as they were written and as far as data pins them down.

The paper asks whether what a Transformer learns is the simplest program for a task, and by which measure. This puts
measures of several programs side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from alta.analysis.minimal import Minimal
from alta.language.program import Program
from alta.language.variables import declared


@dataclass(frozen=True)
class Simplicity:
    """Measures of a program."""

    rules: int  # without resets
    resets: int
    constraints: int
    heads: int
    variables: int  # without those of heads
    values: int  # of all variables together
    layers: int  # the most on the data

    @property
    def row(self) -> tuple[int, ...]:
        """All measures, in the order in which they are shown."""
        return self.rules, self.resets, self.constraints, self.heads, self.variables, self.values, self.layers


MEASURES = ("rules", "resets", "constraints", "heads", "variables", "values", "layers")


def simplicity(minimal: Minimal) -> tuple[Simplicity, Simplicity]:
    """Of a program as it was written, and of its minimal version."""
    seen = minimal.coverage
    before, after = seen.program, minimal.program
    names, values = declared(before.variables), seen.values
    domains = [before.variables[name].domain.values for name in names]
    whole = _measures(before, len(before.rules.resets), map(len, domains), seen.layers)
    return whole, _measures(after, minimal.resets, (len(values[name]) for name in names), seen.layers)


def _measures(program: Program, resets: int, values: Iterable[int], layers: int) -> Simplicity:
    core = program.rules.core
    return Simplicity(
        rules=len(core),
        resets=resets,
        constraints=sum(len(rule.antecedent) for rule in core),
        heads=len(program.heads),
        variables=len(declared(program.variables.keys() - program.heads.keys())),
        values=sum(values),
        layers=layers,
    )


def table(programs: Mapping[str, Minimal]) -> str:
    """Several programs side by side, each before and after minimising."""
    rows: list[tuple[str, ...]] = [("", "", *MEASURES)]
    for name, minimal in programs.items():
        for when, measures in zip(("written", "minimal"), simplicity(minimal), strict=True):
            rows.append((name if when == "written" else "", when, *(f"{number:,}" for number in measures.row)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        names = [text.ljust(width) for text, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join((*names, *numbers)))
    return "\n".join(lines)
