"""Parity end to end: a Transformer encoder, told nothing but inputs and outputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from alta.training.bits import balanced, test_set
from alta.training.exam import judged
from alta.training.loop import Recipe, generator
from alta.training.transformer import Architecture, Transformer

START = 2
"""The token in front of the bits."""

CLASSES = 2

JUDGED = 4096
"""Test inputs that are run side by side."""


class Classifier(nn.Module):
    """The cross-entropy of the parity that is read at the last bit."""

    def __init__(self, size: Architecture, dtype: torch.dtype, random: torch.Generator) -> None:
        super().__init__()
        self.transformer = Transformer(size, START + 1, CLASSES, random, dtype=dtype)

    def forward(self, bits: Tensor, lengths: Tensor, parity: Tensor) -> Tensor:
        return functional.cross_entropy(self.logits(bits, lengths), parity)

    def logits(self, bits: Tensor, lengths: Tensor) -> Tensor:
        """The read-out at the last bit, or at START if there is none. (batch, 2)"""
        tokens, there = framed(bits, lengths)
        encoded = self.transformer.encode(tokens, there)
        return self.transformer.logits(encoded[torch.arange(len(bits), device=bits.device), lengths])


def framed(bits: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """START and the bits, and which positions there are. (batch, position)

    There are a multiple of 8 positions, as matrix units like it."""
    tokens = functional.pad(bits, (1, -(bits.shape[1] + 1) % 8), value=START)
    return tokens, torch.arange(tokens.shape[1], device=bits.device) <= lengths[:, None]


@dataclass(frozen=True)
class ParityTask:
    """Strings of up to `trained` bits, drawn anew for every batch, and a test set of strings up to `tested`."""

    name: str
    recipe: Recipe
    size: Architecture
    trained: int = 20
    tested: int = 40
    test: int = 8200

    def facts(self) -> dict[str, Any]:
        """The whole configuration, as JSON has it."""
        return {"kind": "parity", **asdict(self)}

    def objective(self) -> Classifier:
        """The encoder, new, with its loss."""
        return Classifier(self.size, dtype_of(self.recipe), generator(self.recipe.seed, -2))

    def batches(self, first: int, steps: int, device: torch.device) -> dict[str, Tensor]:
        """Balanced strings."""
        data = balanced((steps, self.recipe.batch), self.trained, generator(self.recipe.seed, first, device))
        return {"bits": data.bits, "lengths": data.lengths, "parity": data.parity}

    def evaluate(self, objective: nn.Module, *, final: bool) -> dict[str, Any]:
        """Accuracy on the test set."""
        assert isinstance(objective, Classifier)
        data = test_set(self.test, self.tested, self.recipe.seed)
        device = objective.transformer.output.device
        outputs = [
            objective.logits(bits.to(device), lengths.to(device)).argmax(dim=-1).cpu()
            for bits, lengths in zip(data.bits.split(JUDGED), data.lengths.split(JUDGED), strict=True)
        ]
        return judged(torch.cat(outputs), data, self.trained, final=final)


def dtype_of(recipe: Recipe) -> torch.dtype:
    """The format in which a Transformer takes products."""
    return torch.bfloat16 if recipe.precision == "bfloat16" else torch.float32
