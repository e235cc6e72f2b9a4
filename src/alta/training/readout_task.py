"""Read-out supervision: a whole Transformer, nothing of it compiled, whose residual stream has to tell, through linear
read-outs, what a program's variables are after each sub-layer.

What heads have read is asked for after attention, all other variables at the start and after each MLP. The read-outs
are the same in all layers. The answer is the read-out of the program's output after the last layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from alta.analysis.coverage import fingerprint
from alta.errors import TrainingError
from alta.language.program import Program, Token
from alta.training.bits import balanced, test_set
from alta.training.exam import judged
from alta.training.loop import Recipe, generator, weighted
from alta.training.parity_task import dtype_of
from alta.training.traces import StateDataset, state_dataset
from alta.training.transformer import Architecture, Transformer

POOL = 4096
"""Strings to train on."""

JUDGED = 1024
"""Test inputs that are run side by side."""


class ReadOut(nn.Module):
    """The mean cross-entropy of all variables."""

    def __init__(
        self, size: Architecture, dtype: torch.dtype, program: Program, data: StateDataset, random: torch.Generator
    ) -> None:
        super().__init__()
        self.sizes = [len(values) for values in data.values.values()]
        self.read = [program.variables[name].is_output for name in data.values]
        self.answer = list(data.values).index(program.output)
        self.transformer = Transformer(size, len(program.tokens), sum(self.sizes), random, dtype=dtype)
        self.transformer.encoder.last.requires_grad_(False)  # read-outs are of the stream as it is

    def forward(self, tokens: Tensor, there: Tensor, codes: Tensor) -> Tensor:
        kept: list[Tensor] = []
        self.transformer.encode(tokens, there, layers=codes.shape[1] // 2, kept=kept)
        after_mlp, after_attention = torch.stack(kept[::2], dim=1), torch.stack(kept[1::2], dim=1)
        losses = []
        for number, (stop, size) in enumerate(zip(accumulate(self.sizes), self.sizes, strict=True)):
            stream, first = (after_attention, 1) if self.read[number] else (after_mlp, 0)
            logits = (stream @ self.transformer.output[:, stop - size : stop]).flatten(0, 2)
            wanted = codes[:, first::2, :, number].flatten().long()
            each = functional.cross_entropy(logits, wanted, ignore_index=-1, reduction="none")
            known = (wanted >= 0).sum()
            losses.append(weighted(each.sum() / known.clamp(min=1), known))
        return torch.stack(losses).mean()

    def outputs(self, tokens: Tensor, there: Tensor, layers: int) -> Tensor:
        """The output at each position after so many layers. (batch, position)"""
        kept: list[Tensor] = []
        self.transformer.encode(tokens, there, layers=layers, kept=kept)
        stop = sum(self.sizes[: self.answer + 1])
        part = self.transformer.output[:, stop - self.sizes[self.answer] : stop]
        found: Tensor = (kept[-1] @ part).argmax(dim=-1)
        return found


@dataclass(frozen=True, eq=False)
class ReadOutTask:
    """A parity program to be learned from its states."""

    name: str
    recipe: Recipe
    size: Architecture
    program: Program
    encode: Callable[[Sequence[int]], Sequence[Token]]  # from bits to the program's tokens
    layers: int  # for which states are given
    tested_layers: int  # for which the Transformer runs on the test set; more than `layers` only if they share weights
    trained: int = 20
    tested: int = 40
    test: int = 8200

    def __post_init__(self) -> None:
        most = max(self.layers, self.tested_layers)
        if most > self.size.layers and not self.size.shared:
            raise TrainingError(
                f"only layers that share their weights can run for {most} layers; there are {self.size.layers}"
            )

    def facts(self) -> dict[str, Any]:
        """The whole configuration, as JSON has it."""
        names = ("name", "layers", "tested_layers", "trained", "tested", "test")
        own = {name: getattr(self, name) for name in names}
        own["program"] = fingerprint(self.program)
        return {"kind": "read-out", **own, "recipe": asdict(self.recipe), "size": asdict(self.size)}

    def objective(self) -> ReadOut:
        """The Transformer, new, with its read-outs and their loss."""
        data = self._data()[0]
        return ReadOut(self.size, dtype_of(self.recipe), self.program, data, generator(self.recipe.seed, -2))

    def batches(self, first: int, steps: int, device: torch.device) -> dict[str, Tensor]:
        """Strings of the pool, with all their states."""
        _, tokens, there, codes = self._data()
        tokens, there, codes = (tensor.to(device) for tensor in (tokens, there, codes))
        shape = steps, self.recipe.batch
        rows = torch.randint(len(tokens), shape, generator=generator(self.recipe.seed, first, device), device=device)
        return {"tokens": tokens[rows], "there": there[rows], "codes": codes[rows]}

    def evaluate(self, objective: nn.Module, *, final: bool) -> dict[str, Any]:
        """Accuracy on the test set."""
        assert isinstance(objective, ReadOut)
        data = test_set(self.test, self.tested, self.recipe.seed)
        device = objective.transformer.output.device
        tokens, there = _framed([self.program.encode(tuple(self.encode(bits))) for bits in data.strings()])
        found = torch.cat(
            [
                objective.outputs(given.to(device), inside.to(device), self.tested_layers).cpu()
                for given, inside in zip(tokens.split(JUDGED), there.split(JUDGED), strict=True)
            ]
        )
        last = there.sum(dim=1) - 1
        outputs = torch.where(last >= 0, found[torch.arange(len(found)), last.clamp(min=0)], 0)
        return judged(outputs, data, self.trained, final=final)

    def _data(self) -> tuple[StateDataset, Tensor, Tensor, Tensor]:
        if not self._kept:
            strings = balanced((POOL,), self.trained, generator(self.recipe.seed, -3)).strings()
            inputs = [tuple(self.encode(bits)) for bits in strings if bits]
            data = state_dataset(self.program, inputs, self.layers)
            tokens, there = _framed([self.program.encode(given) for given in inputs])
            codes = functional.pad(
                torch.from_numpy(data.codes), (0, 0, 0, tokens.shape[1] - data.codes.shape[2]), value=-1
            )
            self._kept.append((data, tokens, there, codes))
        return self._kept[0]

    _kept: list[tuple[StateDataset, Tensor, Tensor, Tensor]] = field(default_factory=list, repr=False)


def _framed(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token indices, a multiple of 8 in a row, and where there are any. (input, position)"""
    longest = -(-max(map(len, rows)) // 8) * 8
    tokens = torch.zeros((len(rows), longest), dtype=torch.long)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row, dtype=torch.long)
    return tokens, torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]
