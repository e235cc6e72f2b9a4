"""The weights of a model, and the one file that holds them."""

from __future__ import annotations

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

from alta.errors import ModelFileError

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

    def dense(self, dtype: Any = np.float64) -> Array:
        """The matrix in full."""
        full = np.zeros(self.shape, dtype)
        full[self.rows, self.columns] = self.values
        return full

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
class Weights:
    """All that a forward pass needs."""

    tokens: Sparse  # (token, dim)
    positions: Sparse | None  # (position, dim)
    heads: tuple[Head, ...]
    mlp: tuple[Linear, ...]
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

    @cached_property
    def parameters(self) -> int:
        """Entries that are not zero."""
        arrays = _arrays(self).items()
        return sum(int(np.count_nonzero(array)) for name, array in arrays if name.endswith(("values", "bias")))

    def __repr__(self) -> str:
        width = self.mlp[-1].weight.shape[1]
        return f"<weights: {self.dim} dims, {len(self.heads)} heads, MLP {width} wide, {self.parameters:,} parameters>"


def save(weights: Weights, path: str | Path) -> None:
    """Writes one safetensors file."""
    description = {
        "format": FORMAT,
        "version": VERSION,
        "heads": [head.name for head in weights.heads],
        "layers": len(weights.mlp),
        "shapes": {name: matrix.shape for name, matrix in _matrices(weights).items()},
        "vocabulary": weights.vocabulary,
        "output_values": weights.output_values,
        "max_length": weights.max_length,
        "causal": weights.causal,
        "dtype": weights.dtype,
        "program": weights.program,
    }
    save_file(_arrays(weights), path, {"alta": json.dumps(description, separators=(",", ":"))})


def load(path: str | Path) -> Weights:
    """Reads what `save` has written. Runs no code."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise ModelFileError(f"there is no file {str(path)!r}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{str(path)!r} is no model, or is damaged: {error}") from None
    try:
        description = json.loads(metadata["alta"])
        found = description["format"], description["version"]
    except (KeyError, ValueError, TypeError):
        raise ModelFileError(f"{str(path)!r} is a safetensors file, but no alta model") from None
    if found != (FORMAT, VERSION):
        raise ModelFileError(f"{str(path)!r} is in format {found[0]} {found[1]}; this alta reads {FORMAT} {VERSION}")
    try:
        return _assemble(description, arrays)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ModelFileError(f"{str(path)!r} is damaged: {type(error).__name__}: {error}") from None


def _matrices(weights: Weights) -> dict[str, Sparse]:
    found = {"tokens": weights.tokens, "output": weights.output}
    if weights.positions is not None:
        found["positions"] = weights.positions
    if weights.halt is not None:
        found["halt"] = weights.halt
    for number, head in enumerate(weights.heads):
        for part in ("query", "key", "value", "output"):
            found[f"heads.{number}.{part}"] = getattr(head, part)
    for number, layer in enumerate(weights.mlp):
        found[f"mlp.{number}.weight"] = layer.weight
    return found


def _arrays(weights: Weights) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    for name, matrix in _matrices(weights).items():
        for part in ("rows", "columns", "values"):
            found[f"{name}.{part}"] = getattr(matrix, part)
    for number, head in enumerate(weights.heads):
        if head.bias is not None:
            found[f"heads.{number}.bias"] = head.bias
    for number, layer in enumerate(weights.mlp):
        found[f"mlp.{number}.bias"] = layer.bias
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

    def head(number: int, name: str) -> Head:
        query, key, value, output = (matrix(f"heads.{number}.{part}") for part in ("query", "key", "value", "output"))
        return Head(name, query, key, value, output, arrays.get(f"heads.{number}.bias"))

    values = description["output_values"]
    return Weights(
        tokens=matrix("tokens"),
        positions=matrix("positions") if "positions" in shapes else None,
        heads=tuple(head(number, name) for number, name in enumerate(description["heads"])),
        mlp=tuple(
            Linear(matrix(f"mlp.{i}.weight"), arrays[f"mlp.{i}.bias"]) for i in range(int(description["layers"]))
        ),
        output=matrix("output"),
        halt=matrix("halt") if "halt" in shapes else None,
        vocabulary=tuple(description["vocabulary"]),
        output_values=None if values is None else tuple(values),
        max_length=description["max_length"],
        causal=description["causal"],
        dtype=description["dtype"],
        program=description["program"],
    )
