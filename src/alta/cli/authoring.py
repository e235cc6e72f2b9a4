"""`alta new` and `alta check`: to begin a program, and to find out what is wrong with it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from alta.analysis.check import Check, Finding, Severity, check
from alta.cli.app import (
    DATA_HELP,
    PROGRAMS,
    DtypeOption,
    JsonOption,
    LayersOption,
    LengthOption,
    ProgramArgument,
    app,
    colored,
    print_json,
    terminal_width,
)
from alta.cli.completion import complete_data
from alta.cli.source import Source
from alta.errors import InputError, ProgramError
from alta.terminal import pad, paint, printable, wrap

INDENT = " " * 9

STYLES = {Severity.OK: "good", Severity.NOTE: "note", Severity.PROBLEM: "bad"}


@app.command("new", rich_help_panel=PROGRAMS, epilog="Example: [bold]alta new largest.py[/]")
def new_program(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write: NAME.py")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")] = False,
) -> None:
    """Write a small program, with comments, to start from.

    It runs, compiles and verifies as it stands.
    """
    if file.suffix != ".py":
        raise InputError(f"a program is written to NAME.py; got {str(file)!r}")
    if file.exists() and not force:
        raise InputError(f"{str(file)!r} is there already; take another name, or --force to overwrite it")
    text = files("alta.cli").joinpath("starter.py.txt").read_text(encoding="utf-8")
    try:
        file.write_text(text.replace("NAME", file.stem), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error}") from None
    print(f"wrote {file}; next: alta check {file}, alta run {file} 'START 2 0 3 1'")


@app.command(
    "check",
    rich_help_panel=PROGRAMS,
    epilog="Examples: [bold]alta check largest.py[/]; [bold]alta check largest.py --inputs lines.txt[/]. "
    "The exit code is 1 if there is a problem.",
)
def check_program(
    program: ProgramArgument,
    inputs: Annotated[
        str | None,
        typer.Option(help="What has to run without an error. " + DATA_HELP, autocompletion=complete_data),
    ] = None,
    max_layers: LayersOption = None,
    dtype: DtypeOption = "float32",
    max_length: LengthOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain what is wrong with a program.

    That is: errors with their lines, traps, heads and variables that do nothing, values that are never held, inputs
    that stop with an error, and whether there is a Transformer for it.
    """
    try:
        source = Source(program)
    except ProgramError as error:
        texts = [str(error), *getattr(error, "__notes__", ())]
        found = Check(tuple(Finding(Severity.PROBLEM, text) for text in texts))
    else:
        given = None if inputs is None else source.data(inputs)
        most = source.layers(max_layers)
        found = check(source.program, given, max_layers=most, dtype=dtype, max_length=max_length)
    if as_json:
        print_json({"problems": len(found.problems), "findings": [asdict(finding) for finding in found.findings]})
    else:
        _print(found)
    if found.problems:
        raise typer.Exit(1)


def _print(found: Check) -> None:
    width = terminal_width() if sys.stdout.isatty() else None
    for finding in found.findings:
        word = pad(finding.severity.value, len(INDENT) - 2)
        before = paint(word, STYLES[finding.severity], colored()) + "  "
        for text, indent in ((finding.text, INDENT), *((detail, INDENT + "  ") for detail in finding.details)):
            room = None if width is None else max(width - len(indent), 20)
            lines = wrap(printable(text).split(" "), room, "")
            print("\n".join((before + lines[0], *(indent + line for line in lines[1:]))))
            before = INDENT + "  "
