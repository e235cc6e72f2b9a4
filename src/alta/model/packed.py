"""The heads of a layer as other frameworks take them: one matrix for all queries, one for all keys, and so on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alta.errors import InputError
from alta.model.weights import Array, Sparse, Weights


@dataclass(frozen=True, eq=False)
class Packed:
    """All heads have the same size; what a smaller head does not use is zero.

    Head h owns the rows (for `output`, the columns) from `h * size` on. Scores are `q · k + bias`, without the usual
    division by the root of the size: pass `scale=1` where a framework divides by itself.
    """

    names: tuple[str, ...]
    size: int
    query: Array  # (head * size, dim)
    key: Array  # (head * size, dim)
    value: Array  # (head * size, dim)
    output: Array  # (dim, head * size)
    bias: Array | None  # (head, offset) for j - i from -far to far; further offsets count as the nearest end


def pack(weights: Weights, layer: int, dtype: Any) -> Packed:
    """The heads of one layer, side by side."""
    if not 0 <= layer < len(weights.layers):
        raise InputError(f"there is no layer {layer}; the model holds {len(weights.layers)}")
    heads = weights.layers[layer].heads
    size = max((max(head.query.shape[0], head.value.shape[0]) for head in heads), default=0)
    far = max((len(head.bias) // 2 for head in heads if head.bias is not None), default=None)

    def side_by_side(matrices: list[Sparse]) -> Array:
        full = np.zeros((len(heads) * size, weights.dim), dtype)
        for number, matrix in enumerate(matrices):
            full[number * size : number * size + matrix.shape[0]] = matrix.dense(dtype)
        return full

    output = np.zeros((weights.dim, len(heads) * size), dtype)
    for number, head in enumerate(heads):
        output[:, number * size : number * size + head.output.shape[1]] = head.output.dense(dtype)
    return Packed(
        names=tuple(head.name for head in heads),
        size=size,
        query=side_by_side([head.query for head in heads]),
        key=side_by_side([head.key for head in heads]),
        value=side_by_side([head.value for head in heads]),
        output=output,
        bias=None if far is None else np.array([_widened(head.bias, far) for head in heads], dtype),
    )


def _widened(bias: Array | None, far: int) -> Array:
    if bias is None:
        return np.zeros(2 * far + 1)
    return np.pad(bias, far - len(bias) // 2, mode="edge")
