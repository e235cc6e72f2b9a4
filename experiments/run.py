"""Runs of the paper's tables, several at a time, each in a process of its own.

    PYTHONPATH=src python experiments/run.py table2 table3 --out runs --jobs 4

A set is a table of the paper (table2, table3, table3-deep, table4) or read-out; single runs have names such as
parity-8-own-relative, or trace-absolute:1 with a seed. A run that was stopped goes on where it was; one that has
finished is left alone. What came of each is written to OUT/NAME-SEED/result.json, and copied to --results; later, if
that was missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

SETS: dict[str, list[str]] = {
    "table2": [f"trace-{name}:{seed}" for name in ("relative", "absolute", "sum-modulo") for seed in range(3)],
    "table3": [f"parity-8-{way}-{at}:0" for at in ("relative", "absolute") for way in ("own", "shared")],
    "table3-deep": [f"parity-40-{way}-{at}:0" for at in ("relative", "absolute") for way in ("shared", "own")],
    "read-out": [f"read-out-{name}:0" for name in ("relative", "absolute", "sum-modulo")],
    "table4": [
        f"scan-{split}-{layers}-{way}-relative:0"
        for split in ("length", "mcd1")
        for layers in (2, 6)
        for way in ("shared", "own")
    ],
}
"""What is run; table4 is the part of the paper's table that is asked for here, and any other cell has a name too."""


def chosen(words: list[str]) -> list[tuple[str, int]]:
    """Names and seeds."""
    found = []
    for word in words:
        for one in SETS.get(word, [word]):
            name, _, seed = one.partition(":")
            found.append((name, int(seed or 0)))
    return found


def one(name: str, seed: int, directory: Path, steps: int | None) -> None:
    """One run, in this process."""
    from alta.recipes import named
    from alta.training.loop import train

    train(named(name, seed=seed, steps=steps), directory, save_every=120)


def commit() -> str:
    """Which version of the code this is."""
    noted = Path("build/carry/commit")
    if noted.is_file():
        return noted.read_text().strip()
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", help="sets or runs")
    parser.add_argument("--out", type=Path, default=Path("build/runs"), help="where runs are kept")
    parser.add_argument("--results", type=Path, default=Path("experiments/results"), help="where results are copied to")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop all runs after so long; they can go on later")
    parser.add_argument("--steps", type=int, help="fewer steps than the run has")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        ((name, seed),) = chosen(given.what)
        one(name, seed, given.out, given.steps)
        return
    end = time.monotonic() + given.minutes * 60
    runs = [(name, seed, given.out / f"{name}-{seed}") for name, seed in chosen(given.what)]
    finished = [run for run in runs if (run[2] / "result.json").exists()]
    for run in finished:
        if not (given.results / f"{run[0]}-{run[1]}.json").exists():
            collect(run, given.results)
    waiting = [run for run in runs if run not in finished]
    going: dict[tuple[str, int, Path], subprocess.Popen[bytes]] = {}
    failed = []
    while waiting or going:
        while waiting and len(going) < given.jobs:
            name, seed, directory = waiting.pop(0)
            directory.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, __file__, "--one", f"{name}:{seed}", "--out", str(directory)]
            command += ["--steps", str(given.steps)] if given.steps else []
            with (directory / "log").open("ab") as log:
                going[name, seed, directory] = subprocess.Popen(command, stdout=log, stderr=log)
        time.sleep(0.5)
        for run, process in list(going.items()):
            if process.poll() is not None:
                del going[run]
                if process.returncode:
                    failed.append(run)
                    print(f"{run[0]}:{run[1]} failed; see {run[2] / 'log'}", flush=True)
                else:
                    collect(run, given.results)
        if time.monotonic() > end:
            for process in going.values():
                process.kill()
            print("stopped:", ", ".join(f"{name}:{seed}" for name, seed, _ in [*going, *waiting]), flush=True)
            break
    sys.exit(1 if failed else 0)


def collect(run: tuple[str, int, Path], results: Path) -> None:
    """Copies what came of a run, with its metrics and the version of the code."""
    name, seed, directory = run
    found = json.loads((directory / "result.json").read_text())
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    results.mkdir(parents=True, exist_ok=True)
    whole = {"name": name, "seed": seed, "commit": commit(), **found, "metrics": [json.loads(line) for line in lines]}
    (results / f"{name}-{seed}.json").write_text(json.dumps(whole, indent=1) + "\n")
    print(f"{name}:{seed}  {found['final']['accuracy']}  {found['steps_per_second']:.0f} steps/s", flush=True)


if __name__ == "__main__":
    main()
