"""Heads as query, key, value and output projections, and relative positions as biases.

A match scores `sharpness ** 2`, anything else 0, so the softmax is 1 over the number of matches for each of them, and
exactly 0 elsewhere: the exponential of minus `sharpness ** 2` vanishes. A position that is out of reach has a bias of
minus twice a match.
"""

from __future__ import annotations

import numpy as np

from alta.compiler.layout import Layout, width
from alta.compiler.precision import Precision
from alta.errors import CompileError
from alta.language.program import Head, Program
from alta.model.weights import Array, Sparse
from alta.model.weights import Head as HeadWeights


def compile_head(program: Program, head: Head, layout: Layout, sharpness: float) -> HeadWeights:
    """The weights of one head."""
    matches = width(program.variables[head.key].domain)
    read = width(program.variables[head.value].domain)

    def rows(name: str, number: int, scale: float) -> Sparse:
        entries = {(row, layout.place(name, row)): scale for row in range(number)}
        return Sparse.of((number, layout.dim), entries)

    output = {(layout.place(head.name, row), row): 1.0 for row in range(read)}
    return HeadWeights(
        name=head.name,
        query=rows(head.query, matches, sharpness),
        key=rows(head.key, matches, sharpness),
        value=rows(head.value, read, 1.0),
        output=Sparse.of((layout.dim, read), output),
        bias=None if head.relative_positions is None else biases(head.relative_positions, sharpness),
    )


def biases(relative_positions: tuple[int, ...], sharpness: float) -> Array:
    """A bias for each offset from -far to far, where both ends stand for all that is further away."""
    far = max(map(abs, relative_positions)) + 1
    found = np.full(2 * far + 1, -2.0 * sharpness**2)
    found[[far + offset for offset in relative_positions]] = 0.0
    return found


def check_sharpness(sharpness: float, precision: Precision) -> None:
    """Refuses a sharpness at which positions that do not match would leak into a head."""
    if sharpness**2 <= precision.vanishing:
        raise CompileError(
            f"sharpness {sharpness:g} lets what does not match leak into heads: exp(-{sharpness**2:g}) is not 0 in "
            f"{precision.name}; take {int(precision.vanishing**0.5) + 1} or more (100 is usual)"
        )
