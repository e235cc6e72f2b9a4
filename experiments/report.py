"""Makes docs/results.md and its plots from what runs have given, beside the paper's figures.

python experiments/report.py experiments/results docs
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from alta import recipes
from alta.analysis.minimal import minimal
from alta.interpreter.batch import run_batch
from alta.show import figures
from alta.training.bits import balanced, test_set
from alta.training.exam import Exam
from alta.training.loop import generator

Result = Mapping[str, Any]

SLICES = ("length <= 20", "length > 20", "ones > 20")

PAPER_TRACE = {"relative": (100, 100, 100), "absolute": (100, 52, 51), "sum-modulo": (100, 78, 50)}
"""Trace supervision in the paper: accuracy in percent, by slice."""

PAPER_PARITY = {
    "parity-8-own-relative": (100, 60, 51),
    "parity-8-shared-relative": (100, 65, 52),
    "parity-40-own-relative": (100, 55, 51),
    "parity-40-shared-relative": (100, 54, 48),
    "parity-8-own-absolute": (100, 49, 50),
    "parity-8-shared-absolute": (100, 50, 52),
    "parity-40-own-absolute": (100, 50, 51),
    "parity-40-shared-absolute": (100, 52, 51),
}

PAPER_SCAN = {
    ("length", "shared", "relative"): (11, 10, 9, 7, 7, 7, 5),
    ("length", "shared", "absolute"): (8, 9, 7, 5, 5, 6, 4),
    ("length", "own", "relative"): (9, 9, 11, 10, 10),
    ("length", "own", "absolute"): (9, 6, 7, 6, 4),
    ("mcd1", "shared", "relative"): (5, 3, 2, 4, 3, 3, 2),
    ("mcd1", "shared", "absolute"): (4, 1, 3, 2, 2, 2, 1),
    ("mcd1", "own", "relative"): (4, 4, 3, 2, 2),
    ("mcd1", "own", "absolute"): (5, 2, 1, 1, 2),
    ("mcd2", "shared", "relative"): (9, 13, 9, 5, 4, 7, 3),
    ("mcd2", "shared", "absolute"): (5, 6, 2, 2, 2, 2, 2),
    ("mcd2", "own", "relative"): (13, 7, 4, 5, 4),
    ("mcd2", "own", "absolute"): (4, 4, 2, 2, 1),
    ("mcd3", "shared", "relative"): (12, 12, 6, 5, 7, 2, 3),
    ("mcd3", "shared", "absolute"): (3, 4, 3, 3, 3, 2, 2),
    ("mcd3", "own", "relative"): (8, 8, 7, 3, 2),
    ("mcd3", "own", "absolute"): (4, 5, 2, 3, 1),
}
"""Test accuracy in percent, by the depths of recipes.DEPTHS."""

NOT_RUN = "not run"


def read(folder: Path) -> dict[str, list[Result]]:
    """The results of each named run, one for each seed."""
    found: dict[str, list[Result]] = {}
    for path in sorted(folder.glob("*-[0-9]*.json")):
        result = json.loads(path.read_text())
        found.setdefault(result["name"], []).append(result)
    return found


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(shares: Sequence[float]) -> str:
    """One figure, or the mean of several with the least and the most."""
    if not shares:
        return NOT_RUN
    mean = 100 * sum(shares) / len(shares)
    low, high = 100 * min(shares), 100 * max(shares)
    return f"{mean:.0f}%" if high - low < 0.5 else f"{mean:.0f}% ({low:.0f} to {high:.0f})"


def accuracies(results: Sequence[Result]) -> list[str]:
    """By slice."""
    return [percent([result["final"]["accuracy"][name] for result in results]) for name in SLICES]


def steps(wanted: int, results: Sequence[Result]) -> str:
    """How long the runs were, said where it is not what they should be."""
    if not results:
        return NOT_RUN
    done = {result["step"] for result in results}
    return ", ".join(f"{one:,}" + ("" if one == wanted else f" of {wanted:,}") for one in sorted(done))


def shorter(wanted: int, results: Sequence[Result]) -> str:
    """What to say of a cell whose runs were not as long as they should be."""
    return "" if all(result["step"] == wanted for result in results) else f" ({steps(wanted, results)} steps)"


def predicted(which: str) -> dict[str, Any]:
    """What the minimal program of the training set makes of the test set: what data alone pins down."""
    build, encode, layers, tested = recipes.PROGRAMS[which]
    program = build()
    strings = balanced((recipes.STRINGS,), recipes.TRAINED, generator(0, -3)).strings()
    most = None if program.halt else layers
    small = minimal(program, [tuple(encode(bits)) for bits in strings], most, progress=False).program
    data = test_set(recipes.TEST, recipes.TESTED, 0)
    runs = run_batch(small, [tuple(encode(bits)) for bits in data.strings()], tested + 1 if most is None else tested)
    outputs = [None if run.error else run.outputs[-1] if run.outputs else 0 for run in runs]
    right = [output == wanted for output, wanted in zip(outputs, data.parity.tolist(), strict=True)]
    return Exam.of_bits(data, recipes.TRAINED).report(data.lengths.new_tensor(right).bool(), final=True)


def trace_table(results: Mapping[str, list[Result]], predictions: Mapping[str, Any]) -> str:
    """The paper's Table 2."""
    rows = []
    for which, paper in PAPER_TRACE.items():
        ours = results.get(f"trace-{which}", [])
        expected = [predictions[which]["accuracy"][name] for name in SLICES]
        for i, name in enumerate(SLICES):
            wanted = recipes.TRACE[which][1].steps
            found = accuracies(ours)[i] + shorter(wanted, ours) if ours else NOT_RUN
            rows.append([which if i == 0 else "", name, f"{paper[i]}%", found, f"{expected[i]:.0%}"])
    return table(["program", "test strings", "paper", "here", "minimal program"], rows)


def parity_table(results: Mapping[str, list[Result]]) -> str:
    """The paper's Table 3."""
    rows = []
    for name, paper in PAPER_PARITY.items():
        _, layers, way, positions = name.split("-")
        ours = results.get(name, [])
        cells = accuracies(ours) if ours else [NOT_RUN] * 3
        both = [f"{theirs}% / {here}" for theirs, here in zip(paper, cells, strict=True)]
        rows.append([layers, way, positions, *both, steps(recipes.PARITY.steps, ours)])
    return table(["layers", "weights", "positions", *SLICES, "steps"], rows)


def scan_table(results: Mapping[str, list[Result]]) -> str:
    """The paper's table of SCAN, each cell as paper / here."""
    rows = []
    for (split, way, positions), paper in PAPER_SCAN.items():
        cells = []
        for depth, theirs in zip(recipes.DEPTHS[recipes.SHARING[way]], paper, strict=True):
            ours = results.get(f"scan-{split}-{depth}-{way}-{positions}", [])
            here = percent([one["final"]["accuracy"]["test"] for one in ours]) if ours else "·"
            cells.append(f"{theirs}% / {here}{shorter(recipes.SCAN.steps, ours)}")
        rows.append([split, way, positions, *cells, *[""] * (7 - len(cells))])
    return table(["split", "weights", "positions", *map(str, recipes.DEPTHS[True])], rows)


def read_out_table(results: Mapping[str, list[Result]]) -> str:
    """Read-out supervision, which the paper has not tried."""
    rows = []
    for which in recipes.PROGRAMS:
        ours = results.get(f"read-out-{which}", [])
        cells = accuracies(ours) if ours else [NOT_RUN] * 3
        rows.append([which, *cells, steps(recipes.READ_OUT.steps, ours)])
    return table(["program", *SLICES, "steps"], rows)


def speed_table(path: Path) -> str:
    """How fast runs train, each alone."""
    if not path.exists():
        return "Not measured yet."
    facts = json.loads(path.read_text())
    rows = [
        [
            run["name"],
            f"{run['parameters']:,}",
            f"{run['milliseconds']:.2f} ms",
            f"{run['operations a second'] / 1e12:.1f} TFLOP/s",
            f"{run['share of the product']:.0%} ({run['precision']})",
            f"{run['share of the copy']:.0%}",
        ]
        for run in facts["runs"]
    ]
    return table(["run", "parameters", "a step", "operations", "of a matrix product", "of a copy"], rows)


def groups(found: Mapping[str, Any], by: str) -> dict[int, tuple[int, int]]:
    """Counts by group; JSON has made texts of their numbers."""
    return {int(group): (right, number) for group, (right, number) in found[f"by {by}"].items()}


def draw(path: Path, columns: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Accuracy by length and by ones: for each column, lines by name."""
    panels = {
        column: {by: {line: groups(found, by) for line, found in lines.items()} for by in ("length", "ones")}
        for column, lines in columns.items()
        if lines
    }
    seen = {column: {by: float(recipes.TRAINED) for by in ("length", "ones")} for column in panels}
    figures.save(figures.accuracy(panels, seen=seen), path)


def machine(results: Iterable[Result]) -> str:
    """What the runs ran on, and with which versions."""
    found = sorted({f"{one['device']}, PyTorch {one['versions']['torch']}" for one in results})
    return "; ".join(found) or "nothing yet"


def main() -> None:
    """Reads results, writes the page."""
    folder, docs = map(Path, sys.argv[1:3])
    results = read(folder)
    predictions = {which: predicted(which) for which in PAPER_TRACE}
    first: Callable[[str], Any] = lambda name: results[name][0]["final"]  # noqa: E731
    columns = {
        which: {"minimal program": predictions[which]}
        | ({"trained on traces": first(f"trace-{which}")} if f"trace-{which}" in results else {})
        for which in PAPER_TRACE
    }
    draw(docs / "results_traces.svg", columns)
    lines: dict[str, dict[str, Any]] = {"relative": {}, "absolute": {}}
    for name in PAPER_PARITY:
        if name in results:
            _, layers, way, positions = name.split("-")
            lines[positions][f"{layers} layers, {way}"] = first(name)
    parity_plot = ""
    if any(lines.values()):
        draw(docs / "results_parity.svg", lines)
        parity_plot = "![Accuracy of encoders trained on parity, by length and by ones](results_parity.svg)"
    page = Template(Path(__file__).with_name("results.md.in").read_text()).substitute(
        trace=trace_table(results, predictions),
        parity=parity_table(results),
        parity_plot=parity_plot,
        scan=scan_table(results),
        read_out=read_out_table(results),
        speed=speed_table(folder / "speed.json"),
        machine=machine(one for several in results.values() for one in several),
    )
    (docs / "results.md").write_text(page)


if __name__ == "__main__":
    main()
