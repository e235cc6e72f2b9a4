"""SCAN end to end: an encoder-decoder that reads commands and writes actions, told nothing but pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from alta.errors import TrainingError
from alta.model.weights import checksum
from alta.training.exam import counted
from alta.training.loop import Recipe, generator, weighted
from alta.training.parity_task import dtype_of
from alta.training.transformer import Architecture, Transformer

PAD, END = 0, 1
"""Tokens of both sides: nothing, and the end. A decoder begins with END."""

JUDGED = 512
"""Test pairs of the evaluations along the way; the final one takes all."""

TOGETHER = 2048
"""Pairs that are decoded side by side."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Commands and actions as numbered tokens, each ended by END, and padded."""

    commands: Tensor  # (pair, position)
    actions: Tensor  # (pair, position)
    words: tuple[str, ...] = field(repr=False)
    verbs: tuple[str, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.commands)


def pairs(train: Sequence[tuple[str, Sequence[str]]], test: Sequence[tuple[str, Sequence[str]]]) -> tuple[Pairs, Pairs]:
    """The pairs of a command and its actions, numbered by the words that there are."""
    both = [*train, *test]
    if not train or not test:
        raise TrainingError("SCAN needs pairs to train on, and pairs to test on")
    words = tuple(sorted({word for command, _ in both for word in command.split()}))
    verbs = tuple(sorted({verb for _, actions in both for verb in actions}))
    found = [
        Pairs(
            _numbered([command.split() for command, _ in part], words),
            _numbered([actions for _, actions in part], verbs),
            words,
            verbs,
        )
        for part in (train, test)
    ]
    return found[0], found[1]


def _numbered(texts: Sequence[Sequence[str]], words: tuple[str, ...]) -> Tensor:
    """Rows of a multiple of 8 tokens, as matrix units like it."""
    numbers = {word: number for number, word in enumerate(words, start=2)}
    rows = torch.full((len(texts), -(-(max(map(len, texts)) + 1) // 8) * 8), PAD)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text) + 1] = torch.tensor([*(numbers[word] for word in text), END])
    return rows


class Translator(nn.Module):
    """The cross-entropy of the actions, each given those before it."""

    def __init__(
        self, size: Architecture, dtype: torch.dtype, tokens: int, outputs: int, random: torch.Generator
    ) -> None:
        super().__init__()
        self.transformer = Transformer(size, tokens, outputs, random, dtype=dtype, decoder=True)

    def forward(self, commands: Tensor, actions: Tensor) -> Tensor:
        there = commands != PAD
        encoded = self.transformer.encode(commands, there)
        logits = self.transformer.decode(_begun(actions), encoded, there)
        loss = functional.cross_entropy(logits.flatten(0, 1), actions.flatten(), ignore_index=PAD)
        return weighted(loss, (actions != PAD).sum())

    def write(self, commands: Tensor, longest: int) -> Tensor:
        """The likeliest action after another, up to END or so many. (batch, position)"""
        there = commands != PAD
        encoded = self.transformer.encode(commands, there)
        written = torch.full((len(commands), longest), PAD, device=commands.device)
        going = torch.ones(len(commands), dtype=torch.bool, device=commands.device)
        for place in range(longest):
            logits = self.transformer.decode(_begun(written)[:, : place + 1], encoded, there)[:, -1]
            written[:, place] = torch.where(going, logits.argmax(dim=-1), PAD)
            going &= written[:, place] != END
            if not going.any():
                break
        return written


def _begun(actions: Tensor) -> Tensor:
    """What a decoder is given: END, and the actions but for the last."""
    return functional.pad(actions[:, :-1], (1, 0), value=END)


@dataclass(frozen=True, eq=False)
class ScanTask:
    """A split of SCAN."""

    name: str
    recipe: Recipe
    size: Architecture
    split: str
    train: Pairs
    test: Pairs

    def facts(self) -> dict[str, Any]:
        """The whole configuration, as JSON has it."""
        parts = {"train": self.train, "test": self.test}
        sizes = {name: len(part) for name, part in parts.items()}
        texts = {f"{name} commands": part.commands.numpy() for name, part in parts.items()}
        texts |= {f"{name} actions": part.actions.numpy() for name, part in parts.items()}
        own = {"kind": "scan", "name": self.name, "split": self.split, "data": checksum("", texts)}
        return own | sizes | {"recipe": asdict(self.recipe), "size": asdict(self.size)}

    def objective(self) -> Translator:
        """The model, new, with its loss."""
        tokens, outputs = len(self.train.words) + 2, len(self.train.verbs) + 2
        return Translator(self.size, dtype_of(self.recipe), tokens, outputs, generator(self.recipe.seed, -2))

    def batches(self, first: int, steps: int, device: torch.device) -> dict[str, Tensor]:
        """Pairs of the training set, drawn evenly."""
        commands, actions = self._on(device)
        shape = steps, self.recipe.batch
        rows = torch.randint(len(commands), shape, generator=generator(self.recipe.seed, first, device), device=device)
        return {"commands": commands[rows], "actions": actions[rows]}

    def evaluate(self, objective: nn.Module, *, final: bool) -> dict[str, Any]:
        """The share of commands whose actions are right to the last, of the test set and of as many to train on."""
        assert isinstance(objective, Translator)
        accuracy, groups = {}, {}
        for name, data in (("train", self.train), ("test", self.test)):
            number = min(len(data), len(self.test) if final else JUDGED)
            chosen = torch.arange(number) * len(data) // number
            right = self._right(objective, data.commands[chosen], data.actions[chosen])
            accuracy[name] = float(right.float().mean())
            groups[f"{name} by length"] = counted(right, (data.actions[chosen] > END).sum(dim=1))
        return {"accuracy": accuracy, **(groups if final else {})}

    def _right(self, objective: Translator, commands: Tensor, actions: Tensor) -> Tensor:
        device = objective.transformer.output.device
        longest = actions.shape[1]
        return torch.cat(
            [
                (objective.write(given.to(device), longest).cpu() == wanted).all(dim=1)
                for given, wanted in zip(commands.split(TOGETHER), actions.split(TOGETHER), strict=True)
            ]
        )

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self._tables:
            self._tables[device] = self.train.commands.to(device), self.train.actions.to(device)
        return self._tables[device]

    _tables: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)
