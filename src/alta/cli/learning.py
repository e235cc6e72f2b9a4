"""`alta coverage`, `minimal`, `predict`, `simplicity`, `optimum`: what data pins down, and what follows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from alta.analysis.coverage import coverage
from alta.analysis.minimal import Minimal, Prediction, minimal, predict
from alta.analysis.optimum import optimum
from alta.analysis.rule_sets import minimal_rules
from alta.analysis.simplicity import simplicity, table
from alta.cli.app import (
    DATA_HELP,
    LEARNING,
    PROGRAM_HELP,
    JsonOption,
    LayersOption,
    ProgramArgument,
    app,
    plain,
    print_json,
)
from alta.cli.completion import complete_data, complete_program
from alta.cli.programs import rule_data
from alta.cli.source import MODEL_SUFFIX, PROGRAM_SUFFIX, Source
from alta.compiler.compile import compile
from alta.errors import InputError
from alta.language.program import Token
from alta.language.record import to_data

ProgramsArgument = Annotated[
    list[str], typer.Argument(metavar="PROGRAM...", help=PROGRAM_HELP, autocompletion=complete_program)
]
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, autocompletion=complete_data)]
TrainOption = Annotated[str, typer.Option("--train", help=DATA_HELP, autocompletion=complete_data)]
ConstraintsOption = Annotated[
    bool, typer.Option("--constraints", help="Also drop constraints that no output depends on.")
]


class Grouping(StrEnum):
    """How test inputs are grouped."""

    LENGTH = "length"
    ONES = "ones"
    NONE = "none"


GROUPINGS: dict[Grouping, Callable[[Sequence[Token]], Hashable]] = {
    Grouping.LENGTH: len,
    Grouping.ONES: lambda tokens: sum(str(token) == "1" for token in tokens),
    Grouping.NONE: lambda _: "test",
}


@app.command("coverage", rich_help_panel=LEARNING, epilog="Example: [bold]alta coverage scan length:train[/]")
def print_coverage(
    program: ProgramArgument,
    data: DataArgument,
    max_layers: LayersOption = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Save it as JSON.")] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Save now and then, and go on from what is saved.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Count what inputs exercise of a program: the rules that fire, tokens, positions and values."""
    source = Source(program)
    found = coverage(source.program, source.data(data), source.layers(max_layers), checkpoint=checkpoint)
    if output is not None:
        found.save(output)
    if as_json:
        rules = [{**rule_data(rule), "fired": count} for rule, count in found.fired.items()]
        values = {name: [plain(value) for value in seen] for name, seen in found.values.items()}
        counts = {"inputs": found.inputs, "failed": found.failed, "layers": found.layers, "positions": found.positions}
        print_json({**counts, "tokens": {str(t): n for t, n in found.tokens.items()}, "values": values, "rules": rules})
    else:
        print(found)


@app.command(
    "minimal",
    rich_help_panel=LEARNING,
    epilog="Examples: [bold]alta minimal scan --train mcd1:train --test mcd1:test[/]; "
    "[bold]alta minimal parity-sum --train bits.txt -o small.json[/]",
)
def print_minimal(
    program: ProgramArgument,
    train: TrainOption,
    test: Annotated[
        str | None, typer.Option(help="Also run it on these. " + DATA_HELP, autocompletion=complete_data)
    ] = None,
    max_layers: LayersOption = None,
    constraints: ConstraintsOption = False,
    search: Annotated[int, typer.Option(min=0, help="With --constraints: also try so many random orders.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Save it: NAME{PROGRAM_SUFFIX}, or compiled as NAME{MODEL_SUFFIX}."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the part of a program that training data pins down.

    Rules that never fire go, and so do tokens and positions that are never seen.
    """
    source = Source(program)
    most = source.layers(max_layers)
    seen = coverage(source.program, source.data(train), most, mlp_inputs=constraints)
    found = minimal(source.program, seen)
    if constraints:
        fewer = minimal_rules(found.program.rules, (given for given, _ in seen.mlp_inputs), search=search)
        found = replace(found, program=replace(found.program, mlp=fewer.rules))
        print(fewer, file=sys.stderr)
    if output is not None:
        _save(found, output)
    if test is not None:
        _print_prediction(predict(source.program, found, source.data(test), most, by=GROUPINGS[Grouping.NONE]), as_json)
    elif as_json:
        print_json(_minimal_data(found))
    else:
        print(found)


@app.command(
    "predict",
    rich_help_panel=LEARNING,
    epilog="Example: [bold]alta predict parity-sum --train short.txt --test long.txt --by ones --plot ones.svg[/]",
)
def print_prediction(
    program: ProgramArgument,
    train: TrainOption,
    test: Annotated[str, typer.Option("--test", help=DATA_HELP, autocompletion=complete_data)],
    by: Annotated[Grouping, typer.Option(help="What test inputs are grouped by.")] = Grouping.LENGTH,
    max_layers: LayersOption = None,
    plot: Annotated[Path | None, typer.Option(help="Draw accuracy by group to this file. Needs matplotlib.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict where a Transformer trained on some data may go wrong.

    That is where the minimal program of the training data does, on test data; with the first inputs that fail, and why.
    """
    source = Source(program)
    batches = source.data(train), source.data(test)
    found = predict(source.program, *batches, source.layers(max_layers), by=GROUPINGS[by])
    if plot is not None:
        draw(found, plot, by)
    _print_prediction(found, as_json)


@app.command(
    "simplicity",
    rich_help_panel=LEARNING,
    epilog="Example: [bold]alta simplicity parity-relative parity-absolute parity-sum --train bits.txt[/]",
)
def print_simplicity(
    programs: Annotated[
        list[str], typer.Argument(metavar="PROGRAM...", help=PROGRAM_HELP, autocompletion=complete_program)
    ],
    train: TrainOption,
    max_layers: LayersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare programs for one task by how simple they are.

    Each is measured as written, and as far as training data pins it down.
    """
    found = {}
    for name in programs:
        source = Source(name)
        found[name] = minimal(source.program, source.data(train), source.layers(max_layers))
    if not as_json:
        print(table(found))
        return
    both = {name: simplicity(one) for name, one in found.items()}
    print_json({name: {"written": asdict(one[0]), "minimal": asdict(one[1])} for name, one in both.items()})


@app.command(
    "optimum", rich_help_panel=LEARNING, epilog="Example: [bold]alta optimum parity-relative bits.txt --alpha 0.1[/]"
)
def print_optimum(
    program: ProgramArgument,
    data: DataArgument,
    alpha: Annotated[float, typer.Option(help="The weight of the regularizer.")] = 0.5,
    regularizer: Annotated[str, typer.Option(help="l1, or l2 (squared).")] = "l1",
    max_layers: LayersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find whether trace supervision would keep a program's weights.

    That is: whether the MLP compiled from the rules is a strict coordinate-wise local optimum of the loss on some data,
    and if not, which parameters may move. For categorical programs.
    """
    source = Source(program)
    seen = coverage(source.program, source.data(data), source.layers(max_layers), mlp_inputs=True).mlp_inputs
    assignments = (assignment for assignment, _ in seen)
    found = optimum(source.program.rules, assignments, alpha, regularizer=regularizer)
    if not as_json:
        print(found)
        return
    failing = [
        {"parameter": one.parameter, "rule": rule_data(one.rule), "left": one.left, "right": one.right}
        for one in found.failing
    ]
    print_json({"optimum": found.is_optimum, "rules": len(found.on), "failing": failing})


def draw(found: Prediction, path: Path, by: Grouping) -> None:
    """Accuracy by group, of the program and of its minimal version."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise InputError("plots need matplotlib: pip install 'alta[plot]'") from None
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    groups = [str(group) for group in found.groups]
    for label, column in (("original", 1), ("minimal", 2)):
        axes.plot(groups, [row[column] / row[0] for row in found.groups.values()], marker=".", label=label)
    axes.set(xlabel=f"by {by.value}", ylabel="accuracy", ylim=(-0.03, 1.03))
    axes.set_xticks(groups[:: max(len(groups) // 12, 1)])
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} cannot be drawn: {error}") from None


def _print_prediction(found: Prediction, as_json: bool) -> None:
    if not as_json:
        print(found)
        return
    groups = [
        {"group": group, "inputs": number, "original": original, "minimal": small}
        for group, (number, original, small) in found.groups.items()
    ]
    failures = [{"inputs": failure.inputs, "reasons": failure.reasons} for failure in found.failures]
    accuracy = {"original": found.original, "minimal": found.accuracy}
    print_json({"accuracy": accuracy, **_minimal_data(found.minimal), "groups": groups, "failures": failures})


def _minimal_data(found: Minimal) -> dict[str, Any]:
    counts = {"rules": found.core + found.resets, "core": found.core, "resets": found.resets}
    return {**counts, "tokens": len(found.coverage.tokens), "positions": found.coverage.positions}


def _save(found: Minimal, output: Path) -> None:
    match output.suffix:
        case ".json":
            try:
                output.write_text(json.dumps(to_data(found.program)))
            except OSError as error:
                raise InputError(f"{str(output)!r} cannot be written: {error}") from None
        case ".safetensors":
            compile(found.program, max_length=max(found.coverage.positions, 1)).save(output)
        case _:
            raise InputError(f"a program is saved as NAME{PROGRAM_SUFFIX} or NAME{MODEL_SUFFIX}; got {str(output)!r}")
