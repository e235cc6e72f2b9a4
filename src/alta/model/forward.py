"""The forward pass in NumPy, written like the equations of the paper (sections 2.3 and A.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.errors import EndlessError, InputError
from alta.model.weights import Array, Head, Linear, Sparse, Weights, save
from alta.model.weights import load as load_weights

Token: TypeAlias = int | str


@dataclass(frozen=True, eq=False)
class ModelRun:
    """What a model gives for one input. `residual` holds the residual stream at the start and after each sub-layer, if
    it was asked for."""

    outputs: tuple[int | float, ...]
    layers: int
    halted: bool
    logits: Array = field(repr=False)  # (position, logit)
    residual: tuple[Array, ...] = field(default=(), repr=False)  # each (position, dim)


def load(path: str | Path) -> Model:
    """The model in a file that `Model.save` has written. Runs no code."""
    return Model(load_weights(path))


class Model:
    """A Transformer with the same weights in every layer."""

    def __init__(self, weights: Weights, dtype: str = "") -> None:
        self.weights = weights
        self.dtype = np.dtype("float64" if dtype == "float64" else "float32")

    def astype(self, dtype: str) -> Model:
        """The same model, computing in another number format: float32 or float64."""
        if dtype not in ("float32", "float64"):
            raise InputError(f"NumPy computes in float32 or float64, not in {dtype!r}; torch has more formats")
        return Model(self.weights, dtype)

    def save(self, path: str | Path) -> None:
        """Writes the model to one safetensors file; `alta.load` reads it."""
        save(self.weights, path)

    def run(self, inputs: Iterable[Token], max_layers: int | None = None, *, residual: bool = False) -> ModelRun:
        """Runs until every position has halted, for at most `max_layers` layers."""
        if self.weights.halt is None and max_layers is None:
            raise InputError("this model has no halting condition, so it needs max_layers")
        tokens = self.encode(inputs)
        z = self.embed(tokens)
        kept = [z]
        landmark = z
        layers = 0
        while not (halted := self.halted(z)) and (max_layers is None or layers < max_layers):
            attended = z + self.attention(z)
            z = attended + self.mlp(attended)
            layers += 1
            if residual:
                kept += [attended, z]
            if max_layers is None and np.array_equal(z, landmark):
                raise EndlessError("the residual stream is one that the run has had before, so it never halts", layers)
            if layers.bit_count() == 1:
                landmark = z
        logits = z @ self._dense(self.weights.output).T
        return ModelRun(self.read_out(logits), layers, halted, logits, tuple(kept) if residual else ())

    def encode(self, inputs: Iterable[Token]) -> NDArray[np.int64]:
        """The inputs as rows of the embedding."""
        found = []
        for position, token in enumerate(inputs):
            try:
                found.append(self._token_rows[token])
            except (KeyError, TypeError):
                known = ", ".join(map(str, self.weights.vocabulary))
                raise InputError(
                    f"{token!r} at position {position} is not a token of this model; tokens: {known}"
                ) from None
        longest = self.weights.max_length
        if longest is not None and len(found) > longest:
            raise InputError(f"{len(found)} tokens are too many; this model was compiled for {longest}")
        return np.array(found, np.int64)

    def embed(self, tokens: NDArray[np.int64]) -> Array:
        """The residual stream at the start."""
        z = self._dense(self.weights.tokens)[tokens]
        if self.weights.positions is not None:
            z = z + self._dense(self.weights.positions)[: len(tokens)]
        return z

    def attention(self, z: Array) -> Array:
        """The sum of what the heads write."""
        written = np.zeros_like(z)
        for head in self.weights.heads:
            attended = self.pattern(head, z) @ (z @ self._dense(head.value).T)
            written += attended @ self._dense(head.output).T
        return written

    def pattern(self, head: Head, z: Array) -> Array:
        """How much position i reads position j. (i, j)"""
        queries = z @ self._dense(head.query).T
        keys = z @ self._dense(head.key).T
        scores = queries @ keys.T
        if head.bias is not None:
            scores = scores + self._relative(head.bias, len(z))
        if self.weights.causal:
            scores = np.where(np.tri(len(z), dtype=bool), scores, -np.inf)
        scores = scores - scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def mlp(self, z: Array) -> Array:
        """What the MLP adds."""
        *hidden, last = self.weights.mlp
        h = z
        for layer in hidden:
            h = np.clip(self._affine(layer, h), 0, 1)
        return self._affine(last, h)

    def halted(self, z: Array) -> bool:
        """Whether every position has halted. No position at all has nothing to do."""
        if not len(z):
            return True
        return self.weights.halt is not None and bool((z @ self._dense(self.weights.halt).T > 0.5).all())

    def read_out(self, logits: Array) -> tuple[int | float, ...]:
        """The output of each position: the largest logit, or the nearest value of a numerical output."""
        values = self.weights.output_values
        if values is None:
            return tuple(int(choice) for choice in logits.argmax(axis=1)) if len(logits) else ()
        nearest = np.abs(logits - np.array(values)).argmin(axis=1)
        return tuple(values[index] for index in nearest)

    def _affine(self, layer: Linear, x: Array) -> Array:
        return np.asarray(x @ self._dense(layer.weight).T + layer.bias.astype(self.dtype))

    def _relative(self, bias: Array, length: int) -> Array:
        far = len(bias) // 2
        offsets = np.arange(length) - np.arange(length)[:, None]
        return np.asarray(bias.astype(self.dtype)[np.clip(offsets, -far, far) + far])

    def _dense(self, matrix: Sparse) -> Array:
        cached = self._matrices.get(id(matrix))
        if cached is None:
            cached = self._matrices[id(matrix)] = matrix.dense(self.dtype)
        return cached

    @cached_property
    def _matrices(self) -> dict[int, Array]:
        return {}

    @cached_property
    def _token_rows(self) -> dict[Any, int]:
        return {token: row for row, token in enumerate(self.weights.vocabulary)}

    def __repr__(self) -> str:
        return f"<model: {str(self.weights)[10:-1]}, {self.dtype}>"
