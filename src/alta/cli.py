"""The command line: `alta list`, `run`, `generate`, `rules`.

Exit codes: 0, all is well; 1, alta says what is wrong with the program, the input or the run; 2, the command line
itself is wrong; 130, interrupted.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

import alta
from alta.errors import AltaError, InputError, ProgramError, listing
from alta.interpreter.run import generate, run
from alta.interpreter.trace import Run, State
from alta.language.program import Program, Token
from alta.language.rules import Rule, Trap
from alta.language.variables import Cell, Missing, declared, format_value
from alta.programs import BUNDLED

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

MOST_LINES = 400
"""A longer trace is printed only when asked for."""

PROGRAM_HELP = "A bundled name (see `alta list`), or path/to/file.py:name."

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


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"alta {alta.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Compile small Python programs to the exact Transformers that run them."""


@app.command("list")
def list_programs(as_json: JsonOption = False) -> None:
    """List the bundled programs, each with an input to try."""
    if as_json:
        _print_json([{"name": n, "summary": b.summary, "example": b.example} for n, b in BUNDLED.items()])
        return
    width = max(map(len, BUNDLED))
    room = max(len(bundled.example) for bundled in BUNDLED.values())
    for name, bundled in BUNDLED.items():
        print(f"{name:{width}}  {bundled.example:{room}}  {bundled.summary}")


@app.command(
    "run", epilog="Examples: [bold]alta run addition 95+7[/]; [bold]alta run scan 'jump twice' --layers 1-3[/]"
)
def run_program(
    program: ProgramArgument,
    text: Annotated[str, typer.Argument(metavar="INPUT", help="The input: tokens, with or without spaces.")],
    max_layers: LayersOption = None,
    trace: Annotated[bool | None, typer.Option(help="Print the trace. By default, if it is short.")] = None,
    variables: Annotated[str | None, typer.Option(help="Only these variables of the trace: a,b")] = None,
    positions: Annotated[str | None, typer.Option(help="Only these positions of the trace: 0,3-5")] = None,
    layers: Annotated[str | None, typer.Option(help="Only these layers of the trace (0 is the start): 0-2")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a program on one input, and print the trace, the outputs and the number of layers."""
    source = Source(program)
    result = run(source.program, source.encode(text), source.max_layers if max_layers is None else max_layers)
    decoded = source.decode(result.outputs)
    if as_json:
        _print_json(
            {
                "inputs": result.trace.inputs,
                "outputs": [_plain(output) for output in result.outputs],
                "decoded": decoded,
                "layers": result.layers,
                "halted": result.halted,
                **({"trace": _trace_data(result)} if trace else {}),
            }
        )
        return
    chosen = {
        "variables": _names(variables, source.program.variables),
        "positions": _numbers(positions, range(len(result.outputs)), "position"),
        "layers": _numbers(layers, range(result.layers + 1), "layer"),
    }
    if trace is not False:
        table = result.trace.table(**chosen, width=shutil.get_terminal_size().columns, color=_colored())  # type: ignore[arg-type]
        lines = table.count("\n") + 1
        if trace or lines <= MOST_LINES or any(choice is not None for choice in chosen.values()):
            print(table + "\n")
        else:
            print(f"(the trace has {lines:,} lines: choose with --variables, --positions, --layers, or give --trace)\n")
    print(f"outputs  {' '.join(map(format_value, result.outputs))}")
    if decoded is not None:
        print(f"decoded  {decoded}")
    print(f"layers   {result.layers}{', halted' if result.halted else ''}")


@app.command("generate", epilog="Example: [bold]alta generate addition-decoder 95+7[/]")
def generate_tokens(
    program: ProgramArgument,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The tokens to go on from.")],
    stop: Annotated[str | None, typer.Option(help="Stop after this token.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Stop after so many tokens.")] = 100,
    max_layers: LayersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a causal program write, token by token."""
    source = Source(program)
    result = generate(
        source.program,
        source.encode(prompt),
        stop=source.stop if stop is None else source.token(stop),
        max_tokens=max_tokens,
        max_layers=source.max_layers if max_layers is None else max_layers,
    )
    layers = [step.layers for step in result.runs]
    if as_json:
        _print_json({"prompt": result.prompt, "tokens": result.tokens, "stopped": result.stopped, "layers": layers})
        return
    print(f"prompt  {' '.join(map(str, result.prompt))}")
    print(f"tokens  {' '.join(map(str, result.tokens))}{'' if result.stopped else ' …'}")
    print(f"layers  {' '.join(map(str, layers))}")


@app.command("rules", epilog="Example: [bold]alta rules parity-relative[/]")
def print_rules(
    program: ProgramArgument,
    variable: Annotated[str | None, typer.Option(help="Only the rules that set this variable.")] = None,
    counts: Annotated[bool, typer.Option("--counts", help="Only count.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a program's MLP does: its rules, the resets of attention outputs, its traps, and how many of each."""
    source = Source(program)
    rules = source.program.rules
    names = _names(variable, source.program.variables)
    shown = [rule for rule in rules if names is None or rule.output in names]
    number = {"rules": len(rules), "core": len(rules.core), "resets": len(rules.resets), "traps": len(rules.traps)}
    if as_json:
        full = {"list": [_rule_data(rule) for rule in shown], "traps": [_trap_data(trap) for trap in rules.traps]}
        _print_json({"counts": number, **({} if counts else full)})
        return
    if not counts:
        for entry in (*shown, *(rules.traps if names is None else ())):
            print(entry)
        print()
    by_output = Counter(rule.output for rule in rules.core)
    for name, count in by_output.most_common():
        print(f"{count:8,} for {name}")
    print(
        f"{number['rules']:8,} rules: {number['core']:,} core, {number['resets']:,} resets; {number['traps']:,} traps"
    )


class Source:
    """A program as named on the command line, with how to read inputs and show outputs."""

    def __init__(self, name: str) -> None:
        bundled = BUNDLED.get(name)
        self._bundled = bundled
        self.max_layers = bundled.max_layers if bundled else None
        self.stop = bundled.stop if bundled else None
        self.program = bundled.build() if bundled else _load(name)

    def encode(self, text: str) -> Sequence[Token]:
        """The tokens of an input."""
        return self._bundled.encode(text) if self._bundled else self.tokens(text)

    def decode(self, outputs: Sequence[Any]) -> str | None:
        """What the outputs say, where that is known."""
        return self._bundled.decode(outputs) if self._bundled and not self.program.causal else None

    def token(self, text: str) -> Token:
        """The token of that name."""
        for token in self.program.tokens:
            if str(token) == text:
                return token
        raise InputError(f"{text!r} is not a token of this program; tokens: {self.program.describe_tokens()}")

    def tokens(self, text: str) -> list[Token]:
        """The tokens in a text: separated by spaces or commas, or else one a character."""
        known: dict[str, Token] = {str(token): token for token in self.program.tokens}
        if text in known:
            return [known[text]]
        words = text.replace(",", " ").split() if "," not in known else text.split()
        if len(words) == 1 and words[0] not in known:
            words = list(words[0])
        for word in words:
            if word not in known:
                tokens = self.program.describe_tokens()
                raise InputError(f"{word!r} is not a token of this program; tokens: {tokens}")
        return [known[word] for word in words]


def _load(name: str) -> Program:
    path, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    if not path.endswith(".py"):
        raise ProgramError(
            f"{name!r} is no bundled program, nor a file written as path/to/file.py:name; bundled: {listing(BUNDLED)}"
        )
    if not Path(path).is_file():
        raise ProgramError(f"there is no file {path!r}")
    module = _import(Path(path))
    programs = [known for known, value in vars(module).items() if isinstance(value, Program)]
    if not attribute:
        if len(programs) != 1:
            raise ProgramError(f"write which program of {path}: {path}:NAME; programs: {listing(programs)}")
        attribute = programs[0]
    if not hasattr(module, attribute):
        raise ProgramError(f"{path} has no {attribute!r}; programs: {listing(programs)}")
    found = getattr(module, attribute)
    if callable(found):
        try:
            found = found()
        except TypeError as error:
            raise ProgramError(f"{attribute!r} in {path} cannot be called without arguments: {error}") from error
    if not isinstance(found, Program):
        raise ProgramError(f"{attribute!r} in {path} is no program, nor a function that returns one, but {found!r}")
    return found


def _import(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        specification.loader.exec_module(module)
    except AltaError:
        raise
    except (Exception, SystemExit) as error:
        raise ProgramError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _names(text: str | None, known: Collection[str]) -> list[str] | None:
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"{name!r} is not a variable; variables: {listing(declared(known))}")
    return names


def _numbers(text: str | None, known: range, what: str) -> list[int] | None:
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


def _trace_data(result: Run) -> dict[str, Any]:
    return {
        "states": [{"after": name, "positions": _state_data(state)} for name, state in result.trace.states],
        "fired": [[[_rule_data(rule) for rule in fired] for fired in layer.fired] for layer in result.trace.layers],
    }


def _state_data(state: State) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in assignment.items()} for assignment in state]


def _rule_data(rule: Rule) -> dict[str, Any]:
    return {
        "if": {c.variable: _plain(c.value) for c in rule.antecedent},
        "set": rule.output,
        "from": _plain(rule.old),
        "to": _plain(rule.new),
    }


def _trap_data(trap: Trap) -> dict[str, Any]:
    return {"if": {c.variable: _plain(c.value) for c in trap.antecedent}, "reason": trap.reason}


def _plain(value: Cell) -> Any:
    if isinstance(value, Missing):
        return None if value is Missing.NULL else "undefined"
    if isinstance(value, frozenset):
        return sorted(value)
    return float(value) if isinstance(value, Fraction) else value


def _print_json(data: object) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


def _colored() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _complain(message: str) -> int:
    print(f"alta: {' '.join(message.split())}", file=sys.stderr)
    return 1
