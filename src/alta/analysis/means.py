"""Which means a head can take, and how far rounding moves them: for the certificate, apart from the compiler's ways.

The compiler looks for the fractions nearest to an edge. Here the sums of so many values are collected one term at a
time, so that both have to be right for a certificate to come about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from alta.compiler.encoding import Encoding
from alta.language.program import Head, Program
from alta.language.variables import Constant, FromPosition, FromToken, Numerical

MOST_SUMS = 1_000_000
"""Different sums that are collected, over all numbers of terms. Beyond, every multiple of the values' common step
between the least and the greatest counts as attainable."""


def holdings(program: Program, name: str) -> list[float]:
    """The values that a numerical variable starts from or is set to."""
    found = {rule.new for rule in program.rules.core if rule.output == name}
    match program.variables[name].start:
        case FromToken(table) | FromPosition(table):
            found.update(table)
        case Constant(value):
            found.add(value)
    return sorted(float(value) for value in found)  # type: ignore[arg-type]


def displacement(encoding: Encoding, name: str) -> Fraction:
    """How far the numbers that stand for a variable's values lie from these at most."""
    values = holdings(encoding.program, name)
    return max(abs(Fraction(encoding.number(name, value)) - Fraction(value)) for value in values)


def longest_selection(program: Program, head: Head, max_length: int | None) -> int | None:
    """How many positions a head reads at most; None if there is no bound."""
    bounds = [program.positions, max_length, None if head.relative_positions is None else len(head.relative_positions)]
    return min((bound for bound in bounds if bound is not None), default=None)


def spans(program: Program, name: str, max_length: int | None) -> list[tuple[Fraction, Fraction] | None] | None:
    """For each bucket of a head's output, the least and the greatest mean that is snapped to it; None for a bucket that
    no mean is nearest to, and None altogether if inputs have no bound."""
    head, domain = program.heads[name], program.variables[name].domain
    assert isinstance(domain, Numerical)
    most = longest_selection(program, head, max_length)
    if most is None:
        return None
    values = [Fraction(value) for value in holdings(program, head.value)]
    origin = values[0]
    scale = math.lcm(*((value - origin).denominator for value in values))
    whole = [int((value - origin) * scale) for value in values]
    common = math.gcd(*whole) or 1
    steps = [number // common for number in whole]
    unit = Fraction(common, scale)  # a value is the origin and so many units
    buckets = [Fraction(value) for value in domain.values]
    edges = [((low + high) / 2 - origin) / unit for low, high in pairwise(buckets)]
    above, below = (np.array([getattr(e, part) for e in edges], object) for part in ("numerator", "denominator"))
    kind = np.int64 if steps[-1] * most * most < 2**62 else object
    seen = np.zeros(len(buckets), bool)
    least, greatest = np.zeros(len(buckets), kind), np.zeros(len(buckets), kind)  # sums, each of so many terms:
    least_of, greatest_of = np.ones(len(buckets), kind), np.ones(len(buckets), kind)
    for terms, sums in enumerate(_sums(steps, most), start=1):
        top = steps[-1] * terms
        inner = np.minimum(np.maximum(above * terms // below, -1), top)  # a sum of so much, a tie, still lies below
        ends = np.concatenate([[-1], inner, [top]]).astype(kind)
        if isinstance(sums, range):
            first, last = ends[:-1] + 1, ends[1:]
        else:
            ends = np.searchsorted(sums, ends.astype(np.int64), side="right")
            first, last = sums[np.minimum(ends[:-1], len(sums) - 1)], sums[np.maximum(ends[1:] - 1, 0)]
        there = (ends[:-1] < ends[1:]).astype(bool)
        lower = there & (~seen | (first * least_of < least * terms).astype(bool))
        higher = there & (~seen | (last * greatest_of > greatest * terms).astype(bool))
        least, least_of = np.where(lower, first, least), np.where(lower, terms, least_of)
        greatest, greatest_of = np.where(higher, last, greatest), np.where(higher, terms, greatest_of)
        seen |= there
    return [
        (origin + Fraction(int(a), int(b)) * unit, origin + Fraction(int(c), int(d)) * unit) if any_there else None
        for any_there, a, b, c, d in zip(seen, least, least_of, greatest, greatest_of, strict=True)
    ]


def _sums(steps: Sequence[int], most: int) -> list[range | NDArray[np.int64]]:
    """For each number of terms, the sums that they can have, or a range that holds them."""
    if steps[-1] * most < 2**62 and (len(steps) == 1 or steps[-1] > 1):
        found: list[range | NDArray[np.int64]] = []
        sums = np.zeros(1, np.int64)
        total = 0
        for _ in range(most):
            if (total := total + len(sums) * len(steps)) > MOST_SUMS:
                break
            sums = np.unique(sums[:, None] + np.array(steps, np.int64))
            found.append(sums)
        else:
            return found
    return [range(steps[-1] * terms + 1) for terms in range(1, most + 1)]


def rounding_of_mean(values: Sequence[float], mean: Fraction, most: int, unit: Fraction) -> Fraction:
    """How far a computed mean of at most so many of the values can lie from the true one, for a relative error of
    `unit` in each operation.

    Every share carries two errors and every product one, and n terms are added in n - 1 steps, in any order. Where no
    value is negative, all partial sums are below the mean itself, and terms of 0 add nothing.
    """
    largest = max(abs(Fraction(value)) for value in values)
    operations = Fraction(most + 4)
    size = largest
    if values[0] >= 0:
        smallest = min((Fraction(value) for value in values if value > 0), default=Fraction(1))
        size = min(largest, abs(mean))
        operations = min(operations, size * most / smallest + 5)
    return operations * unit * size
