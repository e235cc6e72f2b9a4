"""Products with matrices that are mostly zeros, each in the way that suits it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.model.weights import Array, Sparse

Product: TypeAlias = Callable[[Array], Array]
"""From x (position, in) to x @ matrix.T (position, out)."""

Places: TypeAlias = NDArray[np.int32]

MOSTLY_ZERO = 256
"""Zeros for each entry, from which on a matrix is not multiplied in full."""

CELLS = 1 << 22
"""Products that are held at once."""


def product(matrix: Sparse, dtype: np.dtype[Any]) -> Product:
    """Where rows have one entry, x is copied; where almost all is zero, entries are added up; otherwise in full."""
    height, width = matrix.shape
    order = np.lexsort((matrix.columns, matrix.rows))
    rows, columns, values = matrix.rows[order], matrix.columns[order], matrix.values[order].astype(dtype)
    if np.array_equal(rows, np.arange(height)):
        return _selection(columns, values)
    if height * width > MOSTLY_ZERO * max(len(values), 1):
        return _entries(height, rows, columns, values)
    return _dense(matrix.dense(dtype))


def _selection(columns: Places, values: Array) -> Product:
    first = int(columns[0]) if len(columns) else 0
    in_a_row = np.array_equal(columns, np.arange(first, first + len(columns)))
    which = slice(first, first + len(columns)) if in_a_row else columns
    scale = values[0] if len(values) and (values == values[0]).all() else values
    return lambda x: np.asarray(x[:, which] * scale)


def _entries(height: int, rows: Places, columns: Places, values: Array) -> Product:
    filled, starts = np.unique(rows, return_index=True)

    def times(x: Array) -> Array:
        found = np.zeros((height, len(x)), x.dtype)
        if len(filled):
            size = max(CELLS // len(columns), 1)
            for first in range(0, len(x), size):  # turned, so that what is added up lies side by side
                part = np.ascontiguousarray(x[first : first + size].T)[columns] * values[:, None]
                found[filled, first : first + size] = np.add.reduceat(part, starts, axis=0)
        return np.asarray(found.T)

    return times


def _dense(full: Array) -> Product:
    turned = np.ascontiguousarray(full.T)

    def times(x: Array) -> Array:
        on = np.flatnonzero(x.any(axis=0))  # of the units of an MLP, few are on
        if 4 * len(on) < len(turned):
            return np.asarray(np.ascontiguousarray(x[:, on]) @ turned[on])
        return np.asarray(x @ turned)

    return times
