"""`alta list`, `alta rules` and `alta plan`: what programs there are, what one does, and how it runs."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from alta.cli.app import JsonOption, ProgramArgument, app, chosen_names, plain, print_json
from alta.cli.source import Source
from alta.interpreter.plan import plan
from alta.language.rules import Rule, Trap
from alta.programs import BUNDLED


@app.command("list")
def list_programs(as_json: JsonOption = False) -> None:
    """List the bundled programs, each with an input to try."""
    if as_json:
        print_json([{"name": n, "summary": b.summary, "example": b.example} for n, b in BUNDLED.items()])
        return
    width = max(map(len, BUNDLED))
    room = max(len(bundled.example) for bundled in BUNDLED.values())
    for name, bundled in BUNDLED.items():
        print(f"{name:{width}}  {bundled.example:{room}}  {bundled.summary}")


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
    names = chosen_names(variable, source.program.variables)
    shown = [rule for rule in rules if names is None or rule.output in names]
    number = {"rules": len(rules), "core": len(rules.core), "resets": len(rules.resets), "traps": len(rules.traps)}
    if as_json:
        full = {"list": [rule_data(rule) for rule in shown], "traps": [_trap_data(trap) for trap in rules.traps]}
        print_json({"counts": number, **({} if counts else full)})
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


@app.command("plan", epilog="Example: [bold]alta plan addition[/]")
def print_plan(program: ProgramArgument) -> None:
    """Print how the batch interpreter runs a program: what is the same at all positions, which heads share what they
    select, and how rules are looked up."""
    print(plan(Source(program).program))


def rule_data(rule: Rule) -> dict[str, Any]:
    """The rule as JSON has it."""
    return {
        "if": {c.variable: plain(c.value) for c in rule.antecedent},
        "set": rule.output,
        "from": plain(rule.old),
        "to": plain(rule.new),
    }


def _trap_data(trap: Trap) -> dict[str, Any]:
    return {"if": {c.variable: plain(c.value) for c in trap.antecedent}, "reason": trap.reason}
