"""Trace supervision: an MLP that learns what the compiled one does, and takes its place in the compiled model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from alta.compiler.compile import compile
from alta.errors import TrainingError
from alta.language.program import Program, Token
from alta.model.torch import Block, Mlp, TorchModel, linear_weights
from alta.model.weights import Linear, Sparse
from alta.training.bits import Bits, report
from alta.training.loop import Recipe, generator
from alta.training.traces import TraceDataset

UNDEFINED_RANGE = 10.0
"""What is UNDEFINED is drawn evenly from minus this to this."""

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}

JUDGED = 512
"""Test inputs of the evaluations along the way; the final one takes all."""


@dataclass(frozen=True)
class Shape:
    """The size of a learned MLP."""

    layers: int = 2  # hidden ones
    hidden: int = 128
    activation: str = "relu"

    def __post_init__(self) -> None:
        if self.layers < 1 or self.hidden < 1 or self.activation not in ACTIVATIONS:
            raise TrainingError(
                "an MLP has 1 hidden layer or more, of 1 unit or more, and one of the activations "
                f"{', '.join(ACTIVATIONS)}; got {self}"
            )


class LearnedMlp(nn.Sequential):
    """An MLP from one state to the next."""

    def __init__(self, dim: int, shape: Shape, random: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        sizes = [dim, *[shape.hidden] * shape.layers, dim]
        for number, (inputs, outputs) in enumerate(pairwise(sizes)):
            if number:
                self.append(ACTIVATIONS[shape.activation]())
            linear = nn.Linear(inputs, outputs)
            nn.init.normal_(linear.weight, std=(2 / inputs) ** 0.5, generator=random)
            nn.init.zeros_(linear.bias)
            self.append(linear)


class Difference(Mlp):
    """A learned MLP where its input is added to what it gives, as a block does: the next state less this one."""

    def __init__(self, learned: LearnedMlp) -> None:
        super().__init__([], "relu")
        self.append(learned)
        self.shape = learned.shape

    def forward(self, z: Tensor) -> Tensor:
        """How the next state differs. (…, dim)"""
        found: Tensor = super().forward(z)
        return found - z

    def weights(self) -> tuple[Linear, ...]:
        """The same as plain layers: units that carry z and -z along take it away again in the end."""
        if self.shape.activation != "relu":
            raise TrainingError(f"only MLPs with relu are saved in a model; this one has {self.shape.activation}")
        (learned,) = self
        assert isinstance(learned, LearnedMlp)
        first, *middle, last = (linear_weights(part) for part in learned if isinstance(part, nn.Linear))
        dim = first.weight.shape[1]
        both = _identity(dim).above(_identity(dim).scaled(-1.0))
        carried = np.zeros(2 * dim)
        found = [Linear(first.weight.above(both), np.concatenate([first.bias, carried]))]
        for layer in middle:
            height, below = layer.weight.shape
            above = layer.weight.beside(Sparse.of((height, 2 * dim), {}))
            weight = above.above(Sparse.of((2 * dim, below), {}).beside(_identity(2 * dim)))
            found.append(Linear(weight, np.concatenate([layer.bias, carried])))
        return (*found, Linear(last.weight.beside(both.turned().scaled(-1.0)), last.bias))


def with_mlp(program: Program, mlp: LearnedMlp, max_length: int | None = None) -> TorchModel:
    """The compiled model of a program, with a learned MLP in place of its own."""
    device = next(mlp.parameters()).device
    model = compile(program, activation="relu", max_length=max_length).to_torch("float32", str(device))
    block = model.blocks[0]
    assert isinstance(block, Block)
    block.mlp = Difference(mlp)
    return model


def _identity(dim: int) -> Sparse:
    return Sparse.of((dim, dim), {(place, place): 1.0 for place in range(dim)})


class _Loss(nn.Module):
    """The mean squared error of an MLP on a batch."""

    def __init__(self, mlp: LearnedMlp) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, given: Tensor, wanted: Tensor) -> Tensor:
        error: Tensor = self.mlp(given) - wanted
        return error.square().mean()


@dataclass(frozen=True, eq=False)
class TraceTask:
    """An MLP to be trained on the traces of a parity program, and judged inside the compiled model."""

    name: str
    recipe: Recipe
    shape: Shape
    program: Program
    traces: TraceDataset
    inputs: Sequence[Sequence[Token]]  # of the test set
    test: Bits = field(repr=False)
    trained: int  # the longest length of the training set
    max_layers: int  # of the compiled model
    noise: float = 0.1  # the standard deviation of what is added to MLP inputs

    def facts(self) -> dict[str, Any]:
        """The whole configuration, as JSON has it."""
        own = {"kind": "trace", "name": self.name, "shape": asdict(self.shape), "noise": self.noise}
        sizes = {"pairs": len(self.traces), "dims": self.traces.inputs.shape[1], "max_layers": self.max_layers}
        return own | sizes | {"trained": self.trained, "test": len(self.inputs), "recipe": asdict(self.recipe)}

    def objective(self) -> _Loss:
        """The MLP, new, with its loss."""
        return _Loss(LearnedMlp(self.traces.inputs.shape[1], self.shape, generator(self.recipe.seed, -2)))

    def batches(self, first: int, steps: int, device: torch.device) -> dict[str, Tensor]:
        """Pairs drawn as often as they came, with noise, and anything where a value is UNDEFINED."""
        inputs, outputs, undefined, ends = self._on(device)
        random = generator(self.recipe.seed, first, device)
        shape = steps, self.recipe.batch
        share = torch.rand(shape, generator=random, device=device, dtype=torch.float64)
        rows = torch.searchsorted(ends, share * ends[-1], right=True).clamp_(max=len(ends) - 1)
        given = inputs[rows]
        anything = torch.rand(given.shape, generator=random, device=device).mul_(2).sub_(1).mul_(UNDEFINED_RANGE)
        given = torch.where(undefined[rows], anything, given)
        given += torch.randn(given.shape, generator=random, device=device).mul_(self.noise)
        return {"given": given, "wanted": outputs[rows]}

    def evaluate(self, objective: nn.Module, *, final: bool) -> dict[str, Any]:
        """Parity of the test set, by the compiled model with the MLP as it is."""
        assert isinstance(objective, _Loss)
        number = len(self.inputs) if final else min(JUDGED, len(self.inputs))
        chosen = torch.arange(number) * len(self.inputs) // number
        inputs = [self.inputs[place] for place in chosen.tolist()]
        data = Bits(self.test.bits[chosen], self.test.lengths[chosen], self.test.ones[chosen])
        outputs = last_outputs(
            with_mlp(self.program, objective.mlp, self._longest), self.program, inputs, self.max_layers
        )
        return report(outputs, data, self.trained, final=final)

    @property
    def _longest(self) -> int:
        return max(max(map(len, self.inputs)), 1)

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if device not in self._tables:
            traces = self.traces
            arrays: list[Any] = [
                traces.inputs,
                traces.outputs,
                traces.undefined,
                traces.counts.cumsum().astype(np.float64),
            ]
            inputs, outputs, undefined, ends = (torch.from_numpy(array).to(device) for array in arrays)
            self._tables[device] = inputs, outputs, undefined, ends
        return self._tables[device]

    _tables: dict[torch.device, tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=dict, repr=False)


def last_outputs(model: TorchModel, program: Program, inputs: Sequence[Sequence[Token]], max_layers: int) -> Tensor:
    """The output at the last position of each input: the number of its value. An empty input has output 0."""
    rows = [program.encode(tokens) for tokens in inputs]
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.zeros((len(rows), int(lengths.max())), dtype=torch.long)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = torch.tensor(row, dtype=torch.long)
    device = model.output.weight.device
    logits = model(tokens.to(device), lengths.to(device), max_layers).logits.cpu()
    last = (lengths - 1).clamp(min=0)
    outputs: Tensor = logits[torch.arange(len(rows)), last].argmax(dim=-1)
    return torch.where(lengths > 0, outputs, 0)
