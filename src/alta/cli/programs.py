"""`alta list`, `show`, `rules` and `plan`: what programs there are, what one is and does, and how it runs."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Annotated, Any

import typer

from alta.cli.app import (
    PROGRAMS,
    JsonOption,
    LengthOption,
    ProgramArgument,
    VariablesOption,
    app,
    chosen_names,
    colored,
    plain,
    print_json,
    terminal_width,
)
from alta.cli.source import Source
from alta.compiler.compile import compile
from alta.errors import CompileError, amount
from alta.interpreter.plan import plan
from alta.language.rules import Rule, Trap
from alta.programs import BUNDLED
from alta.show.describe import describe
from alta.show.implications import implications
from alta.show.report import Cell, Report
from alta.show.text import text


@app.command("list", rich_help_panel=PROGRAMS, epilog="Example: [bold]alta list[/]")
def list_programs(as_json: JsonOption = False) -> None:
    """List the bundled programs, each with an input to try."""
    if as_json:
        print_json([{"name": n, "summary": b.summary, "example": b.example} for n, b in BUNDLED.items()])
        return
    width = max(map(len, BUNDLED))
    room = max(len(bundled.example) for bundled in BUNDLED.values())
    for name, bundled in BUNDLED.items():
        print(f"{name:{width}}  {bundled.example:{room}}  {bundled.summary}")


@app.command(
    "show",
    rich_help_panel=PROGRAMS,
    epilog="Examples: [bold]alta show addition[/]; [bold]alta show my.safetensors[/]",
)
def show_program(program: ProgramArgument, max_length: LengthOption = None, as_json: JsonOption = False) -> None:
    """Show what a program is, and what Transformer it becomes.

    That is: variables and where they start, heads, rules by what they set, traps, and the model's matrices.
    """
    source = Source(program)
    reports = [describe(source.program)]
    why = ""
    try:
        model = source.model or compile(source.program, max_length=max_length)
        reports.append(describe(model))
    except CompileError as error:
        why = f"no Transformer in float32: {error}"
    if as_json:
        print_json({"program": _report_data(reports[0]), "model": why or _report_data(reports[1])})
        return
    print("\n\n".join(text(report, width=terminal_width(), color=colored()) for report in reports))
    if why:
        print(f"\n{why}")


@app.command(
    "rules",
    rich_help_panel=PROGRAMS,
    epilog="Examples: [bold]alta rules parity-relative[/]; [bold]alta rules addition --variables carry,done[/]",
)
def print_rules(
    program: ProgramArgument,
    variables: VariablesOption = None,
    counts: Annotated[bool, typer.Option("--counts", help="Only count.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a program's MLP does, as rules.

    The resets of attention outputs and the traps come last, and how many there are of each. In a pipe, each is a line.
    """
    source = Source(program)
    rules = source.program.rules
    names = chosen_names(variables, source.program.variables)
    shown = [rule for rule in rules if names is None or rule.output in names]
    number = {"rules": len(rules), "core": len(rules.core), "resets": len(rules.resets), "traps": len(rules.traps)}
    if as_json:
        full = {"list": [rule_data(rule) for rule in shown], "traps": [_trap_data(trap) for trap in rules.traps]}
        print_json({"counts": number, **({} if counts else full)})
        return
    if not counts:
        entries: list[Rule | Trap] = [*shown, *(rules.traps if names is None else ())]
        for line in implications(entries, width=terminal_width() if sys.stdout.isatty() else None, color=colored()):
            print(line)
        print()
    by_output = Counter(rule.output for rule in rules.core)
    for name, count in by_output.most_common():
        print(f"{count:8,} for {name}")
    print(
        f"{number['rules']:8,} rules: {number['core']:,} core, {amount(number['resets'], 'reset')}; "
        f"{amount(number['traps'], 'trap')}"
    )


@app.command("plan", rich_help_panel=PROGRAMS, epilog="Example: [bold]alta plan addition[/]")
def print_plan(program: ProgramArgument, as_json: JsonOption = False) -> None:
    """Print how the batch interpreter runs a program.

    That is: what is the same at all positions, which heads share what they select, and how rules are looked up.
    """
    found = plan(Source(program).program)
    if as_json:
        print_json({"plan": str(found).splitlines()})
    else:
        print(found)


def rule_data(rule: Rule) -> dict[str, Any]:
    """The rule as JSON has it."""
    return {
        "if": {c.variable: plain(c.value) for c in rule.antecedent},
        "set": rule.output,
        "from": plain(rule.old),
        "to": plain(rule.new),
    }


def _report_data(report: Report) -> dict[str, Any]:
    tables = [
        [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in section.rows]
        for section in report.sections
    ]
    headings = [section.heading or "facts" for section in report.sections]
    return {"title": report.title, **dict(zip(headings, tables, strict=True))}


def _trap_data(trap: Trap) -> dict[str, Any]:
    return {"if": {c.variable: plain(c.value) for c in trap.antecedent}, "reason": trap.reason}
