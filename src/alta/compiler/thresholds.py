"""Where the buckets of a numerical variable are told apart, and whether rounding could move a value across.

A threshold lies midway between the attainable values on both sides of a bucket's edge, not on the edge, so that a tie
falls on the side that it should, and half the gap is the margin against rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise

from alta.compiler.encoding import Encoding
from alta.compiler.precision import Precision
from alta.errors import CompileError
from alta.language.program import Head, Program
from alta.language.variables import Constant, FromPosition, FromToken, Numerical, Value

MOST_MEANS = 20_000
"""Means of three or more values are enumerated up to so many; beyond, a superset of them is used."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A step: 0 below `at`, 1 above, by the clipped `scale * (x - at) + 1/2`."""

    at: float
    scale: float
    margin: float  # from `at` to the nearest attainable value
    error: float  # bound on the rounding of x and of the step


def thresholds(encoding: Encoding, name: str, precision: Precision, max_length: int | None) -> list[Threshold]:
    """One for each pair of neighbouring buckets."""
    program = encoding.program
    domain = program.variables[name].domain
    assert isinstance(domain, Numerical)
    if name not in program.heads:
        points = [Fraction(encoding.number(name, value)) for value in domain.values]
        return [_threshold(name, low, high, Fraction(0), precision) for low, high in pairwise(points)]
    head = program.heads[name]
    values = held(program, head.value)
    most = most_selected(program, head, max_length)
    shift = max(abs(Fraction(encoding.number(head.value, value)) - Fraction(value)) for value in values)
    found = []
    for low, high in pairwise(domain.values):
        edge = (Fraction(low) + Fraction(high)) / 2
        below, above = around(edge, [Fraction(value) for value in values], most)
        if below is None:  # every mean is above the edge, so any step below them does
            assert above is not None
            below = above - 1 - abs(above)
        elif above is None:
            above = below + 1 + abs(below)
        error = mean_error(values, max(abs(below), abs(above)), most, precision) + shift
        found.append(_threshold(name, below, above, error, precision))
    return found


def held(program: Program, name: str) -> list[float]:
    """The values that a numerical variable can hold: all of its buckets if the MLP sets it, or else where it starts."""
    variable = program.variables[name]
    assert isinstance(variable.domain, Numerical)
    if any(rule.output == name for rule in program.rules.core):
        return list(variable.domain.values)
    match variable.start:
        case FromToken(table) | FromPosition(table):
            starts: Sequence[Value] = table
        case Constant(value):
            starts = (value,)
        case _:
            starts = ()
    return sorted({float(value) for value in starts})  # type: ignore[arg-type]


def most_selected(program: Program, head: Head, max_length: int | None) -> int:
    """How many positions the head can read at once."""
    bounds = [len(head.relative_positions)] if head.relative_positions is not None else []
    bounds += [length for length in (program.positions, max_length) if length is not None]
    if not bounds:
        raise CompileError(
            f"head {head.name!r} takes means over inputs of any length, which no fixed weights can tell apart; give "
            "compile a max_length, or the program a position_range"
        )
    return min(bounds)


def around(edge: Fraction, values: list[Fraction], most: int) -> tuple[Fraction | None, Fraction | None]:
    """The attainable means of 1 to `most` values that are nearest to the edge: at most it, and above it."""
    if len(values) > 2 and math.comb(most + len(values), len(values)) <= MOST_MEANS:
        means = {
            sum(chosen, Fraction(0)) / n
            for n in range(1, most + 1)
            for chosen in combinations_with_replacement(values, n)
        }
        return max((m for m in means if m <= edge), default=None), min((m for m in means if m > edge), default=None)
    return _around_fractions(edge, values, most)


def _around_fractions(edge: Fraction, values: list[Fraction], most: int) -> tuple[Fraction | None, Fraction | None]:
    lowest, step = min(values), _common_step(values)
    if step == 0:
        return (lowest, None) if lowest <= edge else (None, lowest)
    wanted = (edge - lowest) / step
    steps = (max(values) - lowest) / step
    below: Fraction | None = None
    above: Fraction | None = None
    for n in range(1, most + 1):
        whole = math.floor(wanted * n)
        if whole >= 0:
            candidate = min(Fraction(whole, n), steps)
            below = candidate if below is None else max(below, candidate)
        if whole + 1 <= steps * n:
            candidate = max(Fraction(whole + 1, n), Fraction(0))
            above = candidate if above is None else min(above, candidate)
    return tuple(None if x is None else lowest + x * step for x in (below, above))  # type: ignore[return-value]


def _common_step(values: list[Fraction]) -> Fraction:
    """The largest number of which all differences are multiples."""
    step = Fraction(0)
    for value in values:
        difference = value - min(values)
        step = Fraction(
            math.gcd(step.numerator * difference.denominator, difference.numerator * step.denominator),
            step.denominator * difference.denominator,
        )
    return step


def mean_error(values: Sequence[float], mean: Fraction, most: int, precision: Precision) -> Fraction:
    """A bound on the rounding of a mean near `mean`, as a model sums it: the weights, the products, the additions."""
    smallest = min((abs(Fraction(value)) for value in values if value), default=Fraction(1))
    largest = max(abs(Fraction(value)) for value in values)
    terms, size = Fraction(most), largest
    if min(values) >= 0:  # then the terms are no larger than their sum, and only those that are not 0 round
        size = min(largest, abs(mean))
        terms = min(terms, size * most / smallest + 1)
    return (terms + 4) * precision.rounding * size


def _threshold(name: str, below: Fraction, above: Fraction, error: Fraction, precision: Precision) -> Threshold:
    at = float((below + above) / 2)
    margin = min(Fraction(at) - below, above - Fraction(at))
    error += 8 * precision.rounding * abs(Fraction(at))
    if margin <= 2 * error:
        raise CompileError(
            f"{name!r} has values {float(below):.9g} and {float(above):.9g} on both sides of a bucket's edge, too "
            f"close to tell apart in {precision.name} (rounding moves them by {float(error):.2g}); use fewer buckets, a "
            "shorter max_length, or a wider dtype"
        )
    scale = math.ldexp(1.0, math.ceil(math.log2(1 / (margin - error))))
    return Threshold(at, scale, float(margin), float(error))


def steps(found: Sequence[Threshold]) -> Iterator[tuple[float, float]]:
    """Weight and bias of each step."""
    for threshold in found:
        yield threshold.scale, 0.5 - threshold.scale * threshold.at
