"""What a model is asked to do, checked before it is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from alta.errors import InputError
from alta.model.weights import Weights

Token: TypeAlias = int | str

DTYPES = ("bfloat16", "float32", "float64")


def encode(weights: Weights, inputs: Iterable[Token]) -> list[int]:
    """The inputs as rows of the token embeddings."""
    if not isinstance(inputs, Iterable):
        raise InputError(f"inputs are a sequence of tokens; got {inputs!r}")
    rows = weights.token_rows
    found = []
    for position, token in enumerate(inputs):
        try:
            found.append(rows[token])
        except (KeyError, TypeError):
            known = ", ".join(map(str, weights.vocabulary[:20])) + (", …" if len(weights.vocabulary) > 20 else "")
            raise InputError(
                f"{token!r} at position {position} is not a token of this model; tokens: {known}"
            ) from None
    if weights.max_length is not None and len(found) > weights.max_length:
        raise InputError(f"{len(found)} tokens are too many; this model was compiled for {weights.max_length}")
    return found


def check_batch(batch: Iterable[Iterable[Token]]) -> list[Iterable[Token]]:
    """The inputs of a batch, which has to hold at least one."""
    if isinstance(batch, str) or not isinstance(batch, Iterable):
        raise InputError(f"a batch is a sequence of inputs, each a sequence of tokens; got {batch!r}")
    found = list(batch)
    if not found:
        raise InputError("the batch is empty; give it at least one input")
    return found


def check_format(weights: Weights, dtype: str) -> None:
    """Refuses a number format that the model was not compiled for."""
    if dtype not in DTYPES:
        raise InputError(f"there is no number format {dtype!r}; formats: {', '.join(DTYPES)}")
    if DTYPES.index(dtype) < DTYPES.index(weights.dtype):
        raise InputError(
            f"this model is exact in {weights.dtype} and wider, not in {dtype}; compile(..., dtype={dtype!r}) makes "
            "one that is, or says why there is none"
        )


def most_layers(weights: Weights, max_layers: int | None) -> int | None:
    """How many layers may run, or None if only halting ends the run."""
    if max_layers is not None and (not isinstance(max_layers, int) or max_layers < 0):
        raise InputError(f"max_layers is a whole number, 0 or more; got {max_layers!r}")
    if weights.shared:
        if weights.halt is None and max_layers is None:
            raise InputError("this model has no halting condition, so it needs max_layers")
        return max_layers
    return len(weights.layers) if max_layers is None else min(max_layers, len(weights.layers))
