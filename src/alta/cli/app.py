"""The application: options, errors, exit codes, and how results are printed.

Exit codes: 0, all is well; 1, alta says what is wrong with the program, the input or the run; 2, the command line
itself is wrong; 130, interrupted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection
from fractions import Fraction
from typing import Annotated, Any

import typer

import alta
from alta.cli.completion import complete_program, join_words
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

PROGRAMS, RUNNING, TRANSFORMERS, LEARNING, PICTURES = "Programs", "Running", "Transformers", "Learning", "Pictures"
"""The groups of commands, in which `alta --help` lists them."""

ProgramArgument = Annotated[
    str, typer.Argument(metavar="PROGRAM", help=PROGRAM_HELP, autocompletion=complete_program, show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
LayersOption = Annotated[int | None, typer.Option("--max-layers", min=0, help="Stop after so many layers.")]
DtypeOption = Annotated[str, typer.Option(help="The narrowest format to be exact in: float64, float32, bfloat16.")]
LengthOption = Annotated[
    int | None, typer.Option("--max-length", min=1, help="The longest input; programs that take means need to know it.")
]
VariablesOption = Annotated[str | None, typer.Option("--variables", help="Only these variables: a,b")]


def main() -> None:
    """Runs the command line. Errors are one line, unless --debug is given."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    join_words(os.environ)
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
        others = len(getattr(error, "__notes__", ()))
        sys.exit(_complain(f"{error} (and {others} more: alta check tells all)" if others else str(error)))
    except Exception as error:
        if debug:
            raise
        sys.exit(_complain(f"{type(error).__name__}: {error} (alta --debug shows where)"))


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"alta {alta.__version__}")
        raise typer.Exit


@app.callback(
    epilog="To begin: [bold]alta new mine.py[/], or [bold]alta run addition 95+7[/]. "
    "[bold]alta COMMAND --help[/] has examples.\n\n"
    "Exit codes: 0, all is well; 1, something is wrong with the program, the input or the run, and alta says what; "
    "2, the command line itself is wrong; 130, interrupted."
)
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


def numbers(text: str | None, known: range, what: str) -> list[int] | None:
    """The numbers in a text like 0,3-5; None for no text."""
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        ends = [low.strip(), (high or low).strip()]
        if not all(end.isascii() and end.isdigit() for end in ends) or int(ends[0]) > int(ends[1]):
            raise InputError(f"{what}s are written like 0,3-5; got {text!r}")
        for end in map(int, ends):
            if end not in known:
                raise InputError(f"there is no {what} {end} in this run; the last is {known.stop - 1}")
        numbers.extend(range(int(ends[0]), int(ends[1]) + 1))
    return numbers


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
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """The columns of the terminal, or of what $COLUMNS says."""
    return shutil.get_terminal_size().columns


def _complain(message: str) -> int:
    print(f"alta: {' '.join(message.split())}", file=sys.stderr)
    return 1
