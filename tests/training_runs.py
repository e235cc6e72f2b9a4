"""Short runs, for tests that start processes of their own."""

from __future__ import annotations

import torch

from alta.programs import parity
from alta.training.bits import balanced
from alta.training.exam import Exam
from alta.training.learned import HeldOut, Shape, TraceTask
from alta.training.loop import Recipe, generator, train
from alta.training.parity_task import ParityTask
from alta.training.readout_task import ReadOutTask
from alta.training.scan_task import ScanTask, pairs
from alta.training.traces import trace_dataset
from alta.training.transformer import Architecture


def trace_task(steps, trained_on=6, tested=12, **options):
    program = parity.relative()
    strings = balanced((400,), trained_on, generator(0, -3)).strings()
    traces = trace_dataset(program, [parity.encode(bits) for bits in strings], progress=False)
    data = balanced((300,), tested, generator(0, -1))
    inputs = [tuple(parity.encode(bits)) for bits in data.strings()]
    test = HeldOut.of(program, inputs, None, exam=Exam.of_bits(data, trained_on), last=True)
    recipe = Recipe(steps, 64, **({"learning_rate": 3e-3, "optimizer": "adam", "decay": 0.01} | options))
    return TraceTask("small", recipe, Shape(2, 64), program, traces, test, tested + 1)


def tasks(steps, optimizer="adafactor"):
    """One of each kind."""
    size = Architecture(layers=3, dim=32, hidden=64, heads=2, head_dim=16, shared=True)
    recipe = Recipe(steps, 16, 3e-3, optimizer, evaluations=1)
    words = {"walk": ["W"], "jump": ["J"] * 9, "look": ["L"]}
    known = [(f"{a} and {b}", [*words[a], *words[b]]) for a in words for b in words]
    return {
        "trace": trace_task(steps, optimizer=optimizer, evaluations=6),
        "parity": ParityTask("small", recipe, size, trained=4, tested=5, test=20),
        "scan": ScanTask("small", recipe, size, "own", *pairs(known, known[:4])),
        "read-out": ReadOutTask("small", recipe, size, parity.relative(), parity.encode, 3, 3, 3, 3, 20),
    }


def go(directory: str, steps: int, optimizer: str) -> None:
    """A run with a checkpoint as often as can be."""
    torch.set_num_threads(1)
    train(tasks(steps, optimizer)["trace"], directory, save_every=0, progress=False)
