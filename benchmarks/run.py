"""Measures the interpreters against each other, outputs checked, and writes JSON. `make bench` runs this.

    python benchmarks/run.py benchmarks/results/cpu.json [--scan tasks.txt.gz]

All times are CPU time of one core. The plain interpreter runs some of the inputs of a case, the others all of them.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import alta
from alta import Constraint, Program, Rule, program_spec, v_relative, var
from alta.interpreter.plan import plan
from alta.programs import BUNDLED, addition, parity, scan

ENGINES = ("numpy", "numba")


@dataclass(frozen=True)
class Case:
    """A program on inputs whose right outputs are known."""

    name: str
    program: Program
    inputs: Sequence[Sequence[Any]]
    right: Callable[[int, Sequence[Any]], bool]  # whether these are the outputs of the input of that number
    plain: int  # inputs that the plain interpreter runs

    def check(self, results: Sequence[Any]) -> None:
        """Refuses to time what is wrong."""
        for number, result in enumerate(results):
            if not self.right(number, result.outputs):
                raise AssertionError(f"{self.name}: input {number} came out wrong")


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and what came of it."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def measure(case: Case) -> dict[str, Any]:
    """Seconds per input, for each interpreter."""
    found: dict[str, Any] = {"case": case.name, "inputs": len(case.inputs), "seconds per input": {}}
    sample = case.inputs[:: max(len(case.inputs) // case.plain, 1)][: case.plain]
    alta.run(case.program, case.inputs[0])
    took, _ = cpu(lambda: [alta.run(case.program, given) for given in sample])
    found["seconds per input"]["plain"] = took / len(sample)
    for engine in ENGINES:
        alta.run_batch(case.program, case.inputs[:1], engine=engine)
        best = float("inf")
        for _ in range(3):
            took, results = cpu(
                lambda engine=engine: alta.run_batch(case.program, case.inputs, engine=engine, progress=False)
            )
            case.check(results)
            best = min(best, took)
        found["seconds per input"][engine] = best / len(case.inputs)
    return found


def cases(scan_file: Path | None) -> list[Case]:
    """What people would ask for."""
    generator = random.Random(0)

    def bits(length: int, number: int) -> list[list[int]]:
        return [[generator.randrange(2) for _ in range(length)] for _ in range(number)]

    def parities(name: str, strings: list[list[int]], plain: int) -> Case:
        return Case(
            name,
            BUNDLED["parity-relative"].build(),
            [parity.encode(string) for string in strings],
            lambda i, outputs: parity.decode(outputs) == sum(strings[i]) % 2,
            plain,
        )

    pairs = [(generator.randrange(10**49, 10**50), generator.randrange(10**49, 10**50)) for _ in range(1000)]
    sums = Case(
        "addition, 50 digits",
        BUNDLED["addition"].build(),
        [addition.encode(*pair) for pair in pairs],
        lambda i, outputs: addition.decode(outputs) == sum(pairs[i]),
        3,
    )
    found = [parities("parity, 40 bits", bits(40, 10_000), 20), parities("parity, 1,000 bits", bits(1000, 20), 1), sums]
    if scan_file is not None:
        with gzip.open(scan_file, "rt") as lines:
            data = [line.removeprefix("IN: ").split(" OUT: ") for line in lines]

        def right(i: int, outputs: Sequence[Any]) -> bool:
            return scan.decode(outputs) == data[i][1].split()

        commands = [scan.encode(command) for command, _ in data]
        found.append(Case("SCAN, all of it", BUNDLED["scan"].build(), commands, right, 12))
        found.append(
            Case(
                "SCAN, one command alone",
                BUNDLED["scan"].build(),
                commands[10_000:10_001],
                lambda _, o: right(10_000, o),
                1,
            )
        )
    return found


def by_length() -> list[dict[str, Any]]:
    """Parity, and addition, of longer and longer inputs: seconds per input."""
    generator = random.Random(1)
    found = []
    for length in (64, 128, 256, 512, 1024, 2048, 4096):
        string = [generator.randrange(2) for _ in range(length - 1)]
        numbers = [generator.randrange(10 ** (length // 2 - 3), 10 ** (length // 2 - 2)) for _ in range(2)]
        for name, program, given in (
            ("parity-relative", BUNDLED["parity-relative"].build(), parity.encode(string)),
            ("addition", BUNDLED["addition"].build(), addition.encode(*numbers)),
        ):
            row: dict[str, Any] = {"program": name, "length": length}
            for engine in ENGINES:
                took, (result,) = cpu(partial(alta.run_batch, program, [given], engine=engine, progress=False))
                right = (
                    parity.decode(result.outputs) == sum(string) % 2
                    if name != "addition"
                    else (addition.decode(result.outputs) == sum(numbers))
                )
                assert right, f"{name}, {length} tokens: wrong"
                row[engine] = took
            found.append(row)
    return found


def wide(side: int) -> Program:
    """A program with one rule for each triple of values."""
    a, b, left = ([Constraint(name, i) for i in range(side)] for name in ("a", "b", "left"))
    out = Constraint("out", 0)
    rules = [
        Rule("out", 0, 1 + (i + 3 * j + 7 * k) % (side - 1), (a[i], b[j], left[k], out))
        for i, j, k in product(range(side), repeat=3)
    ]
    return program_spec(
        variables={
            "a": var(side, input_init_fn=lambda token: token),
            "b": var(side, input_init_fn=lambda token: token * 7 % side),
            "out": var(side),
        },
        heads={"left": v_relative("a", 0)},
        rules=rules,
        output_name="out",
        input_range=side,
    )


def megabytes(what: str) -> float:
    """Of this process: VmRSS is what it holds, VmHWM the peak. Linux tells."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def by_rules(side: int) -> dict[str, Any]:
    """Seconds and memory to plan so many rules, and seconds to run them. In a process of its own, for the memory."""
    program = wide(side)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = megabytes("VmRSS")
    took, how = cpu(lambda: plan(program))
    after = megabytes("VmHWM")
    generator = random.Random(0)
    batch = [[generator.randrange(side) for _ in range(50)] for _ in range(1000)]
    row = {
        "rules": len(program.rules.core),
        "plan": took,
        "plan, more megabytes than with the program alone": after - before,
        "megabytes": after,
        "nodes": how.tries.nodes,
    }
    for engine in ENGINES:
        alta.run_batch(program, batch[:1], 1, engine=engine)
        took, results = cpu(partial(alta.run_batch, program, batch, 1, engine=engine, progress=False))
        for given, result in zip(batch, results, strict=True):
            wanted = tuple(1 + (t + 3 * (t * 7 % side) + 7 * t) % (side - 1) for t in given)
            assert result.outputs == wanted, "wrong"
        row[engine] = took / (len(batch) * 50)
    return row


def in_own_process(side: int) -> dict[str, Any]:
    code = (
        f"import json, sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import run; "
        f"print(json.dumps(run.by_rules({side})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main() -> None:
    """Measures everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--scan", type=Path, help="SCAN's tasks.txt, gzipped")
    arguments = parser.parse_args()
    found: dict[str, Any] = {
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "alta": alta.__version__},
        "cases": [],
    }
    for case in cases(arguments.scan):
        row = measure(case)
        found["cases"].append(row)
        print(row["case"], {name: f"{value:.3g} s" for name, value in row["seconds per input"].items()}, flush=True)
    found["by length"] = by_length()
    found["by rules"] = [in_own_process(side) for side in (22, 47, 100)]
    print(json.dumps(found["by rules"], indent=2))
    arguments.output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
