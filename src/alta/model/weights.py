"""The weights of a model, and the one file that holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from alta.errors import ModelFileError, amount

FORMAT = "alta-model"
VERSION = 1

Array: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Sparse:
    """A matrix that is mostly zeros: the places of its entries, row by row, and the entries."""

    shape: tuple[int, int]
    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    values: NDArray[np.float64]

    @staticmethod
    def of(shape: tuple[int, int], entries: Mapping[tuple[int, int], float]) -> Sparse:
        """From a dictionary of entries."""
        places = sorted(entries)
        rows = np.array([row for row, _ in places], np.int32)
        columns = np.array([column for _, column in places], np.int32)
        return Sparse(shape, rows, columns, np.array([entries[place] for place in places], np.float64))

    def scaled(self, factor: float) -> Sparse:
        """Every entry, so many times."""
        return Sparse(self.shape, self.rows, self.columns, self.values * factor)

    def above(self, other: Sparse) -> Sparse:
        """This matrix on top of another."""
        return Sparse(
            (self.shape[0] + other.shape[0], self.shape[1]),
            np.concatenate([self.rows, other.rows + np.int32(self.shape[0])]),
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.values, other.values]),
        )

    def beside(self, other: Sparse) -> Sparse:
        """This matrix to the left of another."""
        return self.turned().above(other.turned()).turned()

    def turned(self) -> Sparse:
        """The transpose."""
        order = np.lexsort((self.rows, self.columns))
        return Sparse(self.shape[::-1], self.columns[order], self.rows[order], self.values[order])

    def part(self, start: int, stop: int) -> Sparse:
        """Some of the rows."""
        inside = (self.rows >= start) & (self.rows < stop)
        shape = (min(stop, self.shape[0]) - start, self.shape[1])
        return Sparse(shape, self.rows[inside] - np.int32(start), self.columns[inside], self.values[inside])

    def by_row(self) -> list[tuple[NDArray[np.int32], NDArray[np.float64]]]:
        """The columns and values of each row's entries, those that are zero left out."""
        order = np.argsort(self.rows, kind="stable")
        order = order[self.values[order] != 0]
        ends = np.searchsorted(self.rows[order], np.arange(1, self.shape[0]))
        return list(zip(np.split(self.columns[order], ends), np.split(self.values[order], ends), strict=True))

    def dense(self, dtype: Any = np.float64) -> Array:
        """The matrix in full."""
        full = np.zeros(self.shape, dtype)
        full[self.rows, self.columns] = self.values
        return full

    @staticmethod
    def from_dense(full: Array) -> Sparse:
        """From the matrix in full."""
        rows, columns = np.nonzero(full)
        height, width = full.shape
        values = full[rows, columns].astype(np.float64)
        return Sparse((height, width), rows.astype(np.int32), columns.astype(np.int32), values)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Head:
    """One attention head."""

    name: str
    query: Sparse  # (match, dim)
    key: Sparse  # (match, dim)
    value: Sparse  # (read, dim)
    output: Sparse  # (dim, read)
    bias: Array | None  # (offset) for j - i from -far to far; further offsets count as the nearest end


@dataclass(frozen=True, eq=False)
class Linear:
    """One layer of the MLP."""

    weight: Sparse  # (out, in)
    bias: Array  # (out)


@dataclass(frozen=True, eq=False)
class Layer:
    """Attention, then MLP."""

    heads: tuple[Head, ...]
    mlp: tuple[Linear, ...]


@dataclass(frozen=True, eq=False)
class Weights:
    """All that a forward pass needs."""

    tokens: Sparse  # (token, dim)
    positions: Sparse | None  # (position, dim)
    layers: tuple[Layer, ...]  # one, which is used again and again, or, if it is not shared, each in its turn
    shared: bool
    activation: str  # of the MLP: "clipped" to between 0 and 1, or "relu"
    output: Sparse  # (logit or 1, dim)
    halt: Sparse | None  # (1, dim): above 1/2 where a position has halted
    vocabulary: tuple[int | str, ...]
    output_values: tuple[float, ...] | None  # for a numerical output, what its read-out is rounded to
    max_length: int | None
    causal: bool
    dtype: str  # the narrowest that the model is exact in
    program: Mapping[str, Any] = field(default_factory=dict)  # the program as data, for whoever knows programs

    @property
    def dim(self) -> int:
        """The width of the residual stream."""
        return self.tokens.shape[1]

    def layer(self, index: int) -> Layer:
        """The layer that runs after `index` others."""
        return self.layers[0 if self.shared else index]

    @property
    def distinct(self) -> tuple[Layer, ...]:
        """The layers, each once: those of an unrolled model are usually one and the same."""
        return tuple({id(layer): layer for layer in self.layers}.values())

    @cached_property
    def token_rows(self) -> Mapping[int | str, int]:
        """The row of each token."""
        return {token: row for row, token in enumerate(self.vocabulary)}

    @cached_property
    def parameters(self) -> int:
        """Entries that are not zero, those of equal layers amount once."""
        arrays = _arrays(self).items()
        return sum(int(np.count_nonzero(array)) for name, array in arrays if name.endswith(("values", "bias")))

    def __repr__(self) -> str:
        layer = self.layers[0]
        depth = "" if self.shared else f"{amount(len(self.layers), 'layer')}, "
        width = layer.mlp[-1].weight.shape[1]
        return (
            f"<weights: {depth}{amount(self.dim, 'dim')}, {amount(len(layer.heads), 'head')}, MLP {width} wide, "
            f"{amount(self.parameters, 'parameter')}>"
        )


def save(weights: Weights, path: str | Path) -> None:
    """Writes one safetensors file."""
    arrays = _arrays(weights)
    distinct = weights.distinct
    description = {
        "format": FORMAT,
        "version": VERSION,
        "layers": [next(i for i, layer in enumerate(distinct) if layer is found) for found in weights.layers],
        "heads": [[head.name for head in layer.heads] for layer in distinct],
        "mlp": [len(layer.mlp) for layer in distinct],
        "shared": weights.shared,
        "activation": weights.activation,
        "shapes": {name: matrix.shape for name, matrix in _matrices(weights).items()},
        "vocabulary": weights.vocabulary,
        "output_values": weights.output_values,
        "max_length": weights.max_length,
        "causal": weights.causal,
        "dtype": weights.dtype,
        "program": weights.program,
    }
    text = json.dumps(description, separators=(",", ":"))
    try:
        save_file(arrays, path, {"alta": text, "sha256": checksum(text, arrays)})
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{str(path)!r} cannot be written: {error}") from None


def load(path: str | Path) -> Weights:
    """Reads what `save` has written. Runs no code."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ModelFileError(f"there is no file {str(path)!r}") from None
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise ModelFileError(f"{str(path)!r} is no model, or is damaged: {error}") from None
    try:
        description = json.loads(metadata["alta"])
        found = description["format"], description["version"]
    except (KeyError, ValueError, TypeError, RecursionError):
        raise ModelFileError(f"{str(path)!r} is a safetensors file, but no alta model") from None
    if found != (FORMAT, VERSION):
        raise ModelFileError(f"{str(path)!r} is in format {found[0]} {found[1]}; this alta reads {FORMAT} {VERSION}")
    if metadata.get("sha256") != checksum(metadata["alta"], arrays):
        raise ModelFileError(
            f"{str(path)!r} is damaged, or was altered since it was saved: its checksum is not its own"
        )
    try:
        return _assemble(description, arrays)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {type(error).__name__}: {error}") from None


def checksum(text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """The same for the same text and arrays."""
    found = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        found.update(f"\0{name} {arrays[name].dtype} {arrays[name].shape}\0".encode())
        found.update(np.ascontiguousarray(arrays[name]).data)
    return found.hexdigest()


def _matrices(weights: Weights) -> dict[str, Sparse]:
    found = {"tokens": weights.tokens, "output": weights.output}
    if weights.positions is not None:
        found["positions"] = weights.positions
    if weights.halt is not None:
        found["halt"] = weights.halt
    for index, layer in enumerate(weights.distinct):
        for number, head in enumerate(layer.heads):
            for part in ("query", "key", "value", "output"):
                found[f"layers.{index}.heads.{number}.{part}"] = getattr(head, part)
        for number, linear in enumerate(layer.mlp):
            found[f"layers.{index}.mlp.{number}.weight"] = linear.weight
    return found


def _arrays(weights: Weights) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name, matrix in _matrices(weights).items():
        for part in ("rows", "columns", "values"):
            found[f"{name}.{part}"] = getattr(matrix, part)
    for index, layer in enumerate(weights.distinct):
        for number, head in enumerate(layer.heads):
            if head.bias is not None:
                found[f"layers.{index}.heads.{number}.bias"] = head.bias
        for number, linear in enumerate(layer.mlp):
            found[f"layers.{index}.mlp.{number}.bias"] = linear.bias
    return found


def _assemble(description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Weights:
    shapes = description["shapes"]

    def matrix(name: str) -> Sparse:
        rows, columns, values = (arrays[f"{name}.{part}"] for part in ("rows", "columns", "values"))
        height, width = shapes[name]
        fits = len(rows) == len(columns) == len(values) and values.dtype == np.float64
        if not fits or (len(rows) and not (0 <= rows.min() <= rows.max() < height)):
            raise ValueError(f"{name} does not have its shape")
        if len(columns) and not (0 <= columns.min() <= columns.max() < width):
            raise ValueError(f"{name} does not have its shape")
        return Sparse((height, width), rows, columns, values)

    def head(at: str, name: str) -> Head:
        query, key, value, output = (matrix(f"{at}.{part}") for part in ("query", "key", "value", "output"))
        return Head(name, query, key, value, output, arrays.get(f"{at}.bias"))

    def layer(index: int) -> Layer:
        at = f"layers.{index}"
        names, depth = description["heads"][index], description["mlp"][index]
        return Layer(
            heads=tuple(head(f"{at}.heads.{number}", name) for number, name in enumerate(names)),
            mlp=tuple(Linear(matrix(f"{at}.mlp.{i}.weight"), arrays[f"{at}.mlp.{i}.bias"]) for i in range(depth)),
        )

    distinct = [layer(index) for index in range(len(description["heads"]))]
    values = description["output_values"]
    return Weights(
        tokens=matrix("tokens"),
        positions=matrix("positions") if "positions" in shapes else None,
        layers=tuple(distinct[index] for index in description["layers"]),
        shared=description["shared"],
        activation=description["activation"],
        output=matrix("output"),
        halt=matrix("halt") if "halt" in shapes else None,
        vocabulary=tuple(description["vocabulary"]),
        output_values=None if values is None else tuple(values),
        max_length=description["max_length"],
        causal=description["causal"],
        dtype=description["dtype"],
        program=description["program"],
    )
