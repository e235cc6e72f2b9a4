"""What a model gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alta.model.inputs import Token
from alta.model.weights import Array, Weights


@dataclass(frozen=True, eq=False)
class ModelRun:
    """What a model gives for one input. `residual` holds the residual stream at the start and after each sub-layer, if
    it was asked for.

    >>> found = model.run(["START", "1", "0"], residual=True)
    >>> found.outputs, found.layers, found.halted
    ((0, 1, 1), 2, True)
    >>> found.logits.shape, len(found.residual), found.residual[0].shape
    ((3, 2), 5, (3, 9))
    """

    outputs: tuple[int | float, ...]
    layers: int
    halted: bool
    logits: Any = field(repr=False)  # (position, logit)
    residual: tuple[Any, ...] = field(default=(), repr=False)  # each (position, dim)


@dataclass(frozen=True)
class ModelGeneration:
    """What a causal model has written after a prompt, and how many layers each token took.

    >>> scratchpad = alta.compile(parity.scratchpad())
    >>> written = scratchpad.generate(["START", "1", "0", "="], stop="END")
    >>> written.tokens, written.stopped, written.layers
    (('1', '1', 'END'), True, (4, 4, 4))
    """

    prompt: tuple[Token, ...]
    tokens: tuple[Token, ...]
    stopped: bool
    layers: tuple[int, ...]


def read_out(weights: Weights, logits: Array) -> tuple[int | float, ...]:
    """The output of each position: the largest logit, or the nearest value of a numerical output."""
    values = weights.output_values
    if values is None:
        return tuple(int(choice) for choice in logits.argmax(axis=1)) if len(logits) else ()
    nearest = np.abs(logits - np.array(values)).argmin(axis=1)
    return tuple(values[index] for index in nearest)
