"""`alta coverage`, `minimal`, `predict`, `simplicity`, `optimum`: what data pins down, and what follows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import asdict, replace
from enum import StrEnum
from functools import partial
from operator import itemgetter
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
    colored,
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
from alta.show.figures import accuracy, save
from alta.terminal import paint

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


GROUPINGS: dict[Grouping, Callable[[Sequence[Token]], int | str]] = {
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
    smallest: Annotated[bool, typer.Option("--smallest", help="With --constraints: find a smallest set.")] = False,
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
        data = (given for given, _ in seen.mlp_inputs)
        fewer = minimal_rules(found.program.rules, data, search=search, smallest=smallest)
        found = replace(found, program=replace(found.program, mlp=fewer.rules))
        print(fewer, file=sys.stderr)
    if output is not None:
        _save(found, output)
    if test is not None:
        ways = [Grouping.NONE]
        right = predict(source.program, found, source.data(test), most, by=partial(_groups, ways))
        if as_json:
            print_json(_prediction_data(right, ways))
        else:
            print(right.regrouped(itemgetter(0)))
    elif as_json:
        print_json(_minimal_data(found))
    else:
        print(found)


@app.command(
    "predict",
    rich_help_panel=LEARNING,
    epilog="Examples: [bold]alta predict parity-sum --train short.txt --test long.txt --by ones[/]; "
    "[bold]alta predict parity-relative parity-sum --train short.txt --test long.txt --by length --by ones "
    "--plot accuracy.svg[/]",
)
def print_prediction(
    programs: ProgramsArgument,
    train: TrainOption,
    test: Annotated[str, typer.Option("--test", help=DATA_HELP, autocompletion=complete_data)],
    by: Annotated[
        list[Grouping] | None, typer.Option(help="What test inputs are grouped by: length, if nothing is given.")
    ] = None,
    max_layers: LayersOption = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw accuracy by group: a column for each program, a row for each --by.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Predict where a Transformer trained on some data may go wrong.

    That is where the minimal program of the training data does, on test data; with the first inputs that fail, and why.
    """
    ways = list(dict.fromkeys(by or [Grouping.LENGTH]))
    found: dict[str, Prediction] = {}
    seen: dict[str, dict[str, float]] = {}
    for name in programs:
        source = Source(name)
        given, new = source.data(train), source.data(test)
        found[name] = predict(source.program, given, new, source.layers(max_layers), by=partial(_groups, ways))
        counted = [way for way in ways if way is not Grouping.NONE and given]
        seen[name] = {way.value: max(float(GROUPINGS[way](tokens)) for tokens in given) for way in counted}
    if plot is not None:
        panels = {
            name: {way.value: one.regrouped(itemgetter(i)).series for i, way in enumerate(ways)}
            for name, one in found.items()
        }
        save(accuracy(panels, seen=seen), plot)
    if as_json:
        data = {name: _prediction_data(one, ways) for name, one in found.items()}
        print_json(data if len(programs) > 1 else data[programs[0]])
        return
    for number, (name, one) in enumerate(found.items()):
        if len(programs) > 1:
            print("\n" * (number > 0) + paint(name, "title", colored()))
        if len(ways) == 1:
            print(one.regrouped(itemgetter(0)))
            continue
        print(f"minimal program: {one.minimal}")
        for i, way in enumerate(ways):
            print(one.regrouped(itemgetter(i)).table(f"by {way.value}"))
        if one.failures:
            print(one.first_failures)


def _groups(ways: Sequence[Grouping], tokens: Sequence[Token]) -> tuple[Hashable, ...]:
    return tuple(GROUPINGS[way](tokens) for way in ways)


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


def _prediction_data(found: Prediction, ways: Sequence[Grouping]) -> dict[str, Any]:
    """With one way of grouping, its groups; with several, those of each."""
    groups = {
        way.value: [
            {"group": group, "inputs": number, "original": original, "minimal": small}
            for group, (number, original, small) in found.regrouped(itemgetter(i)).groups.items()
        ]
        for i, way in enumerate(ways)
    }
    failures = [{"inputs": failure.inputs, "reasons": failure.reasons} for failure in found.failures]
    accuracy = {"original": found.original, "minimal": found.accuracy}
    kept = groups if len(ways) > 1 else groups[ways[0].value]
    return {"accuracy": accuracy, **_minimal_data(found.minimal), "groups": kept, "failures": failures}


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
