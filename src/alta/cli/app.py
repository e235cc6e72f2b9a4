"""The application: options, errors, exit codes, and how results are printed.

Exit codes: 0, all is well; 1, alta says what is wrong with the program, the input or the run; 2, the command line
itself is wrong; 130, interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from fractions import Fraction
from typing import Annotated, Any

import typer

import alta
from alta.errors import AltaError, InputError, listing
from alta.language.variables import Cell, Missing, declared

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

PROGRAM_HELP = "A bundled name (see `alta list`), path/to/file.py:name, a saved program.json or model.safetensors."

DATA_HELP = "A file (.jsonl, or one input a line), - for standard input, or, of SCAN, SPLIT:train or SPLIT:test."

ProgramArgument = Annotated[str, typer.Argument(metavar="PROGRAM", help=PROGRAM_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
LayersOption = Annotated[int | None, typer.Option("--max-layers", min=0, help="Stop after so many layers.")]


def main() -> None:
    """Runs the command line. Errors are one line, unless --debug is given."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(arguments, prog_name="alta")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except AltaError as error:
        if debug:
            raise
        sys.exit(_complain(str(error)))
    except Exception as error:
        if debug:
            raise
        sys.exit(_complain(f"{type(error).__name__}: {error} (alta --debug shows where)"))


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"alta {alta.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Compile small Python programs to the exact Transformers that run them."""


def chosen_names(text: str | None, known: Collection[str]) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"{name!r} is not a variable; variables: {listing(declared(known))}")
    return names


def plain(value: Cell) -> Any:
    """The value as JSON has it."""
    if isinstance(value, Missing):
        return None if value is Missing.NULL else "undefined"
    if isinstance(value, frozenset):
        return sorted(value)
    return float(value) if isinstance(value, Fraction) else value


def print_json(data: object) -> None:
    """Prints a result for scripts."""
    print(json.dumps(data, indent=2, ensure_ascii=False))


def colored() -> bool:
    """Whether to print in colour."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _complain(message: str) -> int:
    print(f"alta: {' '.join(message.split())}", file=sys.stderr)
    return 1
