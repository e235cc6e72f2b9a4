"""The named runs: each cell of the paper's tables of trained Transformers, and read-out supervision beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alta.errors import TrainingError
from alta.language.program import Program, Token
from alta.programs import parity, scan_data
from alta.training.bits import balanced, test_set
from alta.training.exam import Exam
from alta.training.learned import HeldOut, Shape, TraceTask
from alta.training.loop import Recipe, Task, generator
from alta.training.parity_task import ParityTask
from alta.training.readout_task import ReadOutTask
from alta.training.scan_task import ScanTask, pairs
from alta.training.traces import trace_dataset
from alta.training.transformer import Architecture

TRAINED, TESTED = 20, 40
"""The longest strings of bits, in training and in the test."""

STRINGS = 10_000
"""How many of them traces are taken of."""

TEST = 8200
"""Test strings: about 200 for each number of ones."""

ONES = 50
"""The counts, and positions, that programs for trace supervision have room for."""

SCALE = 1000.0
"""What the share of START is multiplied by, so that noise does not drown the differences."""

Encode = Callable[[Sequence[int]], Sequence[Token]]

PROGRAMS: dict[str, tuple[Callable[[], Program], Encode, int, int]] = {
    "relative": (parity.relative, parity.encode, TRAINED, TESTED),
    "absolute": (lambda: parity.absolute(ONES), list, TRAINED, TESTED),
    "sum-modulo": (lambda: parity.by_count(ONES - 1, SCALE), parity.encode, 2, 2),
}
"""The paper's parity programs, with how to encode bits, and the layers that training and test strings take."""

_ADAM = {"learning_rate": 1e-4, "optimizer": "adam", "warmup": 100, "decay": 0.01, "batch": 256}

TRACE: dict[str, tuple[Shape, Recipe]] = {
    "relative": (Shape(2, 128), Recipe(50_000, 256, 1e-2, warmup=100, decay=0.01)),
    "absolute": (Shape(4, 4096), Recipe(50_000, evaluations=4, **_ADAM)),  # type: ignore[arg-type]
    "sum-modulo": (Shape(4, 4096), Recipe(400_000, **_ADAM)),  # type: ignore[arg-type]
}
"""Trace supervision: the sizes and settings of the paper's Table 1."""

PARITY = Recipe(50_000, 128, 5e-4, precision="bfloat16", evaluations=20)
SCAN = Recipe(100_000, 128, 5e-4, precision="bfloat16")
READ_OUT = Recipe(20_000, 128, 1e-3, optimizer="adam", warmup=500, decay=0.01)

PARITY_SIZE = Architecture()
SCAN_SIZE = Architecture(dim=128, hidden=512, heads=8, head_dim=128)
READ_OUT_SIZE = Architecture(dim=128, hidden=512, heads=4, head_dim=32, shared=True)

SHARING = {"shared": True, "own": False}
SPLITS = ("length", "mcd1", "mcd2", "mcd3")
DEPTHS = {True: (2, 6, 16, 32, 64, 128, 256), False: (2, 6, 16, 32, 64)}


def names() -> list[str]:
    """Every named run."""
    found = [f"trace-{name}" for name in TRACE]
    ways = [(way, positions) for positions in ("relative", "absolute") for way in ("own", "shared")]
    found += [f"parity-{layers}-{way}-{positions}" for layers in (8, 40) for way, positions in ways]
    found += [f"read-out-{name}" for name in PROGRAMS]
    found += [
        f"scan-{split}-{layers}-{way}-{positions}"
        for split in SPLITS
        for way, positions in ways
        for layers in DEPTHS[SHARING[way]]
    ]
    return found


def named(name: str, *, seed: int = 0, steps: int | None = None) -> Task:
    """The run of a name, with a seed, and with fewer steps if they are given. `parity-` and `scan-` take any number of
    layers: `parity-12-shared-relative`."""
    match re.fullmatch(r"(trace|parity|read-out|scan)-(.+)", name):
        case re.Match() as found:
            kind, rest = found.groups()
        case _:
            raise _unknown(name)
    if kind == "trace" and rest in TRACE:
        return _trace(name, rest, seed, steps)
    if kind == "read-out" and rest in PROGRAMS:
        program, encode, layers, tested = PROGRAMS[rest]
        positions = "absolute" if rest == "absolute" else "relative"
        size = replace(READ_OUT_SIZE, layers=layers, positions=positions)
        return ReadOutTask(name, _with(READ_OUT, seed, steps), size, program(), encode, layers, tested)
    shape = re.fullmatch(r"(?:(\w+)-)?(\d+)-(shared|own)-(relative|absolute)", rest)
    if shape is None:
        raise _unknown(name)
    split, depth, way, positions = shape.groups()
    given = {"layers": int(depth), "shared": SHARING[way], "positions": positions}
    settings = {"seed": seed} | ({} if steps is None else {"steps": steps})
    if kind == "parity" and split is None:
        return parity_run(given, settings, name=name)
    if kind == "scan" and split is not None:
        return scan_run(split, given, settings, name=name)
    raise _unknown(name)


def parity_run(
    size: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    trained: int = TRAINED,
    tested: int = TESTED,
    name: str = "parity",
) -> ParityTask:
    """Parity end to end, as in the paper but for what is given of the architecture and the recipe."""
    return ParityTask(name, replace(PARITY, **settings), replace(PARITY_SIZE, **size), trained, tested, TEST)


def scan_run(split: str, size: Mapping[str, Any], settings: Mapping[str, Any], *, name: str = "scan") -> ScanTask:
    """SCAN end to end, likewise."""
    parts = [[(one.command, one.actions) for one in scan_data.split(split, part)] for part in ("train", "test")]
    return ScanTask(name, replace(SCAN, **settings), replace(SCAN_SIZE, **size), split, *pairs(*parts))


def _trace(name: str, which: str, seed: int, steps: int | None) -> TraceTask:
    build, encode, _, layers = PROGRAMS[which]
    shape, recipe = TRACE[which]
    program = build()
    strings = balanced((STRINGS,), TRAINED, generator(seed, -3)).strings()
    traces = trace_dataset(
        program, [tuple(encode(bits)) for bits in strings], None if program.halt else layers, progress=False
    )
    data = test_set(TEST, TESTED, seed)
    inputs = [tuple(encode(bits)) for bits in data.strings()]
    most = layers if program.halt is None else layers + 1
    test = HeldOut.of(program, inputs, most, exam=Exam.of_bits(data, TRAINED), last=True)
    return TraceTask(name, _with(recipe, seed, steps), shape, program, traces, test, most)


def _with(recipe: Recipe, seed: int, steps: int | None) -> Recipe:
    return replace(recipe, seed=seed, steps=steps or recipe.steps)


def _unknown(name: str) -> TrainingError:
    return TrainingError(
        f"there is no run {name!r}; runs: {', '.join(f'trace-{one}' for one in TRACE)}, "
        f"{', '.join(f'read-out-{one}' for one in PROGRAMS)}, parity-LAYERS-(shared|own)-(relative|absolute), "
        "scan-SPLIT-LAYERS-(shared|own)-(relative|absolute)"
    )
