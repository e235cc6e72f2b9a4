"""The forward pass in NumPy, written like the equations of the paper (sections 2.3 and A.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from alta.displayed import Displayed
from alta.errors import EndlessError, InputError
from alta.model.generation import generate
from alta.model.inputs import Token, check_batch, check_format, encode, most_layers
from alta.model.packed import Packed, pack
from alta.model.products import Product, product
from alta.model.result import ModelGeneration, ModelRun, read_out
from alta.model.weights import Array, Head, Linear, Sparse, Weights, save
from alta.model.weights import load as load_weights

if TYPE_CHECKING:
    from alta.model.torch import TorchModel

Context: TypeAlias = Sequence[tuple[Array, Array]]
"""For each head, the keys (position, match) and the values (position, read) of all positions."""

MOST_MASKS = 64
"""Masks that are kept at once."""


def load(path: str | Path) -> Model:
    """The model in a file that `Model.save` has written. Runs no code.

    >>> model.save("parity.safetensors")
    >>> alta.load("parity.safetensors").run(["START", "1", "0"]).outputs
    (0, 1, 1)
    """
    return Model(load_weights(path))


class Model(Displayed):
    """A Transformer. Its layers all have the same weights, unless it was unrolled.

    >>> print(model)
    <model: 9 dims, 2 heads, MLP 7 wide, 59 parameters, float32>
    """

    def __init__(self, weights: Weights, dtype: str = "") -> None:
        self.weights = weights
        self.dtype = np.dtype(dtype or ("float64" if weights.dtype == "float64" else "float32"))

    def astype(self, dtype: str) -> Model:
        """The same model, computing in another number format: float32 or float64.

        >>> model.astype("float64").run(["START", "1"]).logits.dtype
        dtype('float64')
        """
        if dtype not in ("float32", "float64"):
            raise InputError(f"NumPy computes in float32 or float64, not in {dtype!r}; torch has more formats")
        check_format(self.weights, dtype)
        return Model(self.weights, dtype)

    def to_torch(self, dtype: str | None = None, device: str = "cpu") -> TorchModel:
        """The same model as a torch.nn.Module, in float64, float32 or bfloat16. Needs PyTorch.

        >>> twin = model.to_torch()
        >>> twin.run(["START", "1", "0"]).outputs
        (0, 1, 1)
        """
        from alta.model.torch import TorchModel

        dtype = str(self.dtype) if dtype is None else dtype
        check_format(self.weights, dtype)
        return TorchModel(self.weights, dtype, device)

    def packed(self, layer: int = 0) -> Packed:
        """The heads of a layer side by side in one matrix for all queries, keys and so on, padded to one size.

        >>> packed = model.packed()
        >>> packed.names, packed.size, packed.query.shape
        (('parity_left', 'done_left'), 2, (4, 9))
        """
        return pack(self.weights, layer, self.dtype)

    def save(self, path: str | Path) -> None:
        """Writes the model to one safetensors file; `alta.load` reads it.

        >>> model.save("parity.safetensors")
        >>> alta.verify(alta.load("parity.safetensors")) == alta.verify(model)
        True
        """
        save(self.weights, path)

    def run(self, inputs: Iterable[Token], max_layers: int | None = None, *, residual: bool = False) -> ModelRun:
        """Runs until every position has halted, for at most `max_layers` layers.

        >>> found = model.run(["START", "1", "0"])
        >>> found.outputs, found.layers, found.halted
        ((0, 1, 1), 2, True)
        """
        most = most_layers(self.weights, max_layers)
        z = self.embed(encode(self.weights, inputs))
        kept = [z]
        landmark = z
        layers = 0
        while not (halted := bool(self.halts(z).all())) and (most is None or layers < most):
            attended, z = self.layer(layers, z)
            layers += 1
            if residual:
                kept += [attended, z]
            if most is None and np.array_equal(z, landmark):
                raise EndlessError("the residual stream is one that the run has had before, so it never halts", layers)
            if layers.bit_count() == 1:
                landmark = z
        logits = self.logits(z)
        return ModelRun(read_out(self.weights, logits), layers, halted, logits, tuple(kept) if residual else ())

    def run_batch(
        self, batch: Iterable[Iterable[Token]], max_layers: int | None = None, *, residual: bool = False
    ) -> list[ModelRun]:
        """The same for many inputs, of different lengths.

        >>> [found.outputs for found in model.run_batch([["START"], ["START", "1", "1"]])]
        [(0,), (0, 1, 0)]
        """
        return [self.run(inputs, max_layers, residual=residual) for inputs in check_batch(batch)]

    def generate(
        self,
        prompt: Iterable[Token],
        *,
        stop: Token | None = None,
        max_tokens: int = 1000,
        max_layers: int | None = None,
        cached: bool = True,
    ) -> ModelGeneration:
        """Lets a causal model write, token by token, as `alta.generate` does.

        `cached` keeps what earlier positions have computed, layer by layer, since nothing that comes later changes it.

        >>> alta.compile(parity.scratchpad()).generate(["START", "1", "1", "="], stop="END").tokens
        ('1', '0', 'END')
        """
        return generate(self, prompt, stop, max_tokens, max_layers, cached)

    def embed(self, tokens: Sequence[int], first: int = 0) -> Array:
        """The residual stream at the start, of tokens at the positions from `first` on. (position, dim)

        >>> model.embed(program.encode(["START", "1"]))  # parity, done, _always, and two empty outputs of heads
        array([[1., 0., 0., 1., 1., 0., 0., 0., 0.],
               [0., 1., 1., 0., 1., 0., 0., 0., 0.]], dtype=float32)
        """
        z = self._table(self.weights.tokens)[np.array(tokens, np.int64)]
        if self.weights.positions is not None:
            z = z + self._table(self.weights.positions)[first : first + len(tokens)]
        return z

    def layer(self, index: int, z: Array, context: Context | None = None) -> tuple[Array, Array]:
        """The residual stream after attention, and after the MLP. With a context, `z` holds its last positions only.

        >>> z = model.embed(program.encode(["START", "1"]))
        >>> attended, after = model.layer(0, z)
        >>> attended.shape, model.halts(after)
        ((2, 9), array([ True,  True]))
        """
        attended = z + self.attention(index, z, context)
        return attended, attended + self.mlp(index, attended)

    def attention(self, index: int, z: Array, context: Context | None = None) -> Array:
        """The sum of what the heads write.

        >>> z = model.embed(program.encode(["START", "1"]))
        >>> model.attention(0, z)[1]  # the second position has read parity 0 and done 1 on its left
        array([0., 0., 0., 0., 0., 1., 0., 0., 1.], dtype=float32)
        """
        context = self.context(index, z) if context is None else context
        written = np.zeros_like(z)
        for head, (keys, values) in zip(self.weights.layer(index).heads, context, strict=True):
            written += self._times(head.output, self.pattern(head, z, keys) @ values)
        return written

    def context(self, index: int, z: Array) -> Context:
        """The keys and values of each head.

        >>> z = model.embed(program.encode(["START", "1"]))
        >>> (keys, values), _ = model.context(0, z)
        >>> keys.shape, values.shape
        ((2, 1), (2, 2))
        """
        heads = self.weights.layer(index).heads
        return [(self._times(head.key, z), self._times(head.value, z)) for head in heads]

    def pattern(self, head: Head, z: Array, keys: Array) -> Array:
        """How much position i reads position j. (i, j), where the i are the last of the j

        >>> z = model.embed(program.encode(["START", "1", "0"]))
        >>> head, (keys, _) = model.weights.layer(0).heads[0], model.context(0, z)[0]
        >>> model.pattern(head, z, keys)[1:]  # each reads its left neighbour
        array([[1., 0., 0.],
               [0., 1., 0.]], dtype=float32)
        """
        scores = self._times(head.query, z) @ keys.T
        if head.bias is not None:
            scores += self._biases(head, len(z), len(keys))
        if self.weights.causal:
            scores[_later(len(z), len(keys))] = -np.inf
        shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def mlp(self, index: int, z: Array) -> Array:
        """What the MLP adds.

        >>> attended, after = model.layer(0, model.embed(program.encode(["START", "1"])))
        >>> bool((attended + model.mlp(0, attended) == after).all())
        True
        """
        *hidden, last = self.weights.layer(index).mlp
        h = z
        for linear in hidden:
            h = self._affine(linear, h)
            h = np.clip(h, 0, 1) if self.weights.activation == "clipped" else np.maximum(h, 0)
        return self._affine(last, h)

    def halts(self, z: Array) -> NDArray[np.bool_]:
        """Which positions have halted.

        >>> model.halts(model.embed(program.encode(["START", "1"])))
        array([ True, False])
        """
        if self.weights.halt is None:
            return np.zeros(len(z), bool)
        return np.asarray(self._times(self.weights.halt, z)[:, 0] > 0.5)

    def logits(self, z: Array) -> Array:
        """The read-out of each position. (position, logit)

        >>> model.logits(model.embed(program.encode(["START", "1"])))
        array([[1., 0.],
               [0., 1.]], dtype=float32)
        """
        return self._times(self.weights.output, z)

    def rows(self, number: int, width: int) -> Array:
        """So many rows of zeros.

        >>> model.rows(2, 3).shape
        (2, 3)
        """
        return np.zeros((number, width), self.dtype)

    def _affine(self, linear: Linear, x: Array) -> Array:
        return np.asarray(self._times(linear.weight, x) + linear.bias.astype(self.dtype))

    def _times(self, matrix: Sparse, x: Array) -> Array:
        found = self._products.get(id(matrix))
        if found is None:
            found = self._products[id(matrix)] = product(matrix, self.dtype)
        return found(x)

    def _table(self, matrix: Sparse) -> Array:
        found = self._tables.get(id(matrix))
        if found is None:
            found = self._tables[id(matrix)] = matrix.dense(self.dtype)
        return found

    def _biases(self, head: Head, queries: int, keys: int) -> Array:
        """What relative positions add to the scores; kept, since every layer asks for the same."""
        assert head.bias is not None
        key = id(head.bias), queries, keys
        if key not in self._masks:
            if len(self._masks) >= MOST_MASKS:
                self._masks.clear()
            far = len(head.bias) // 2
            distances = np.clip(_distances(queries, keys), -far, far)
            self._masks[key] = head.bias.astype(self.dtype)[distances + far]
        return self._masks[key]

    @cached_property
    def _products(self) -> dict[int, Product]:
        return {}

    @cached_property
    def _tables(self) -> dict[int, Array]:
        return {}

    @cached_property
    def _masks(self) -> dict[tuple[int, int, int], Array]:
        return {}

    def __getstate__(self) -> dict[str, object]:
        return {"weights": self.weights, "dtype": self.dtype}

    def __repr__(self) -> str:
        return f"<model: {str(self.weights)[10:-1]}, {self.dtype}>"


def _distances(queries: int, keys: int) -> NDArray[np.int64]:
    """From each query to each key; the queries are the last of the keys. (i, j)"""
    return np.arange(keys) - np.arange(keys - queries, keys)[:, None]


@lru_cache(maxsize=8)
def _later(queries: int, keys: int) -> NDArray[np.bool_]:
    return np.asarray(_distances(queries, keys) > 0)
