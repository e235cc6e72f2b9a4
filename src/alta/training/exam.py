"""How trained models are judged: the share of a test set that is right, in all and by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from alta.training.bits import Bits


@dataclass(frozen=True)
class Exam:
    """A test set's parts: slices, which get a figure each, and groups by number, which are counted in the end."""

    slices: Mapping[str, Tensor] = field(repr=False)  # (input): whether it belongs there
    groups: Mapping[str, Tensor] = field(repr=False)  # (input): the number of its group

    @staticmethod
    def of(inputs: Sequence[Sequence[object]]) -> Exam:
        """For any test set: one slice, and groups by length."""
        lengths = torch.tensor([len(tokens) for tokens in inputs])
        return Exam({"test": torch.ones(len(inputs), dtype=torch.bool)}, {"length": lengths})

    @staticmethod
    def of_bits(data: Bits, trained: int) -> Exam:
        """The slices of the paper's tables: up to the longest length that was trained on, and beyond."""
        slices = {
            f"length <= {trained}": data.lengths <= trained,
            f"length > {trained}": data.lengths > trained,
            f"ones > {trained}": data.ones > trained,
        }
        return Exam(slices, {"length": data.lengths, "ones": data.ones})

    def some(self, chosen: Tensor) -> Exam:
        """The exam of some of the inputs."""
        slices, groups = ({name: part[chosen] for name, part in parts.items()} for parts in (self.slices, self.groups))
        return Exam(slices, groups)

    def report(self, right: Tensor, *, final: bool) -> dict[str, Any]:
        """What a run says of itself, as JSON has it."""
        parts = {name: float(right[inside].float().mean()) for name, inside in self.slices.items() if inside.any()}
        found: dict[str, Any] = {"accuracy": parts}
        if final:
            found |= {f"by {name}": counted(right, numbers) for name, numbers in self.groups.items()}
        return found


def counted(right: Tensor, groups: Tensor) -> dict[int, tuple[int, int]]:
    """For each group, how many are right, and of how many."""
    found = {}
    for group in groups.unique().tolist():
        inside = groups == group
        found[int(group)] = int(right[inside].sum()), int(inside.sum())
    return found


def judged(outputs: Tensor, data: Bits, trained: int, *, final: bool) -> dict[str, Any]:
    """The report on outputs for parity; the final one also counts how often they are 1."""
    found = Exam.of_bits(data, trained).report(outputs == data.parity, final=final)
    return found | ({"outputs of 1, by ones": counted(outputs == 1, data.ones)} if final else {})
