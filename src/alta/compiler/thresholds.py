"""Where the buckets of a numerical variable are told apart, and whether rounding could move a value across.

A threshold lies midway between the attainable values on both sides of a bucket's edge, not on the edge, so that a tie
falls on the side that it should, and half the gap is the margin against rounding.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
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
    """Two steps that meet: `scale * (x - at) + 1/2` is at most 0 below and at least 1 above, and its mirror image the
    other way round. `scale` is a power of two and `scale * at` a multiple of 1/8, so the steps themselves round nothing
    across."""

    at: float
    scale: float
    reach: float  # how large a step can become, unclipped


def thresholds(encoding: Encoding, name: str, precision: Precision, max_length: int | None) -> list[Threshold]:
    """One for each pair of neighbouring buckets."""
    program = encoding.program
    domain = program.variables[name].domain
    assert isinstance(domain, Numerical)
    if name not in program.heads:
        points = [Fraction(encoding.number(name, value)) for value in domain.values]
        largest = max(map(abs, points))
        for pair, (value, other) in zip(pairwise(points), pairwise(domain.values), strict=True):
            if pair[0] == pair[1]:
                raise CompileError(
                    f"the buckets {value:.9g} and {other:.9g} of {name!r} are too close to tell apart in "
                    f"{precision.name}, beside values as large as {float(largest):.9g}; use a wider dtype"
                )
        return [_threshold(name, low, high, Fraction(0), largest, precision) for low, high in pairwise(points)]
    head = program.heads[name]
    values = held(program, head.value)
    most = most_selected(program, head, max_length)
    means = Means([Fraction(value) for value in values], most)
    shift = max(abs(Fraction(encoding.number(head.value, value)) - Fraction(value)) for value in values)
    largest = max(abs(Fraction(value)) for value in values)
    found = []
    for low, high in pairwise(domain.values):
        below, above = means.around((Fraction(low) + Fraction(high)) / 2)
        if below is None:  # every mean is above the edge, so any step below them does
            assert above is not None
            below = above - largest - 1
        elif above is None:
            above = below + largest + 1
        error = mean_error(values, max(abs(below), abs(above)), most, precision) + shift
        found.append(_threshold(name, below, above, error, largest, precision))
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


class Means:
    """The attainable means of 1 to `most` of the values, or a set that holds them."""

    def __init__(self, values: Sequence[Fraction], most: int) -> None:
        self.lowest, self.highest, self.most = min(values), max(values), most
        self.step = _common_step(values)
        self.all: list[Fraction] | None = None
        if len(values) > 2 and math.comb(most + len(values), len(values)) <= MOST_MEANS:
            chosen = (c for n in range(1, most + 1) for c in combinations_with_replacement(values, n))
            self.all = sorted({sum(terms, Fraction(0)) / len(terms) for terms in chosen})

    def around(self, edge: Fraction) -> tuple[Fraction | None, Fraction | None]:
        """Those nearest to the edge: at most it, and above it."""
        if self.all is not None:
            place = bisect_right(self.all, edge)
            return self.all[place - 1] if place else None, self.all[place] if place < len(self.all) else None
        if edge < self.lowest:
            return None, self.lowest
        if edge >= self.highest:
            return self.highest, None
        below, above = _farey((edge - self.lowest) / self.step, self.most)
        return self.lowest + below * self.step, min(self.lowest + above * self.step, self.highest)


def _farey(wanted: Fraction, most: int) -> tuple[Fraction, Fraction]:
    """The nearest fractions with denominators up to `most`: at most what is wanted, and above it."""
    low, low_of = math.floor(wanted), 1
    high, high_of = low + 1, 1
    while True:
        under, over = wanted * low_of - low, high - wanted * high_of
        steps = min(math.floor(under / over), (most - low_of) // high_of)
        low, low_of = low + steps * high, low_of + steps * high_of
        under = wanted * low_of - low
        room = (most - high_of) // low_of
        more = min(math.ceil(over / under) - 1, room) if under else room
        high, high_of = high + more * low, high_of + more * low_of
        if not steps and not more:
            return Fraction(low, low_of), Fraction(high, high_of)


def _common_step(values: Sequence[Fraction]) -> Fraction:
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


def _threshold(
    name: str, below: Fraction, above: Fraction, error: Fraction, largest: Fraction, precision: Precision
) -> Threshold:
    margin = (above - below) / 2 - error
    if margin > error:
        exponent = margin.denominator.bit_length() - margin.numerator.bit_length()
        exponent += margin * Fraction(2) ** exponent < 1  # now the scale times the margin is 1 or a little more
        eighths = round((below + above) / 2 * Fraction(2) ** exponent * 8)
        if abs(eighths) < 2 ** (precision.bits - 1) and abs(exponent) < precision.exponent:
            at, scale = Fraction(eighths, 8) / Fraction(2) ** exponent, Fraction(2) ** exponent
            return Threshold(float(at), float(scale), float(scale * (largest + abs(at)) + 2))
    raise CompileError(
        f"{name!r} has values {float(below):.9g} and {float(above):.9g} on both sides of a bucket's edge, too "
        f"close to tell apart in {precision.name} (rounding moves them by {float(error):.2g}); use fewer buckets, "
        "a shorter max_length, or a wider dtype"
    )
