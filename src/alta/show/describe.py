"""What there is to show of each kind of thing, once for terminals and notebooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import singledispatch

from alta.analysis.certificate import Certificate
from alta.analysis.coverage import Coverage
from alta.analysis.minimal import Minimal, Prediction
from alta.compiler.compile import encode
from alta.compiler.precision import precision_of
from alta.errors import LoweringError, amount, listing
from alta.interpreter.trace import Run, Trace
from alta.language.program import Program, Token
from alta.language.record import from_data
from alta.language.rules import Rule, RuleSet, Trap
from alta.language.variables import (
    Constant,
    FromPosition,
    FromToken,
    Output,
    SetOf,
    Start,
    Value,
    declared,
    format_value,
)
from alta.model.forward import Model
from alta.model.weights import Linear, Sparse, Weights
from alta.show.report import Cell, Report, Section, first

MOST_ROWS = 60
"""Rows of a table that are shown."""

MOST_RULES = 40
"""Rules of a set that are shown."""

MOST_STATES = 25
"""States of a trace that are shown side by side."""

MOST_VALUES = 8
"""Values of a variable that are written out."""


@singledispatch
def describe(thing: object) -> Report:
    """What there is to show. Models in PyTorch are known by their weights, so that PyTorch is not imported here."""
    weights = getattr(thing, "weights", None)
    if isinstance(weights, Weights):
        return _model(f"<{type(thing).__name__}: {str(weights)[10:-1]}>", weights)
    raise TypeError(f"there is no way to show a {type(thing).__name__}")


@describe.register
def _(program: Program) -> Report:
    length = "any length" if program.positions is None else f"up to {amount(program.positions, 'token')}"
    halt = program.halt
    facts = [
        ("tokens", some(map(str, program.tokens))),
        ("inputs", length + (", causal: each position reads only what comes before it" if program.causal else "")),
        ("output", program.output),
        (
            "halts",
            "never, so runs need max_layers" if halt is None else f"where {halt.variable}={format_value(halt.value)}",
        ),
    ]
    own = [name for name in declared(program.variables) if name not in program.heads]
    variables = [
        (name, str(program.variables[name].domain), starts(program.variables[name].start, program.tokens))
        for name in own
    ]
    heads = [
        (
            head.name,
            head.value,
            "everywhere" if head.query.startswith("_") else f"{head.key} {_compares(program, head.query)} {head.query}",
            "any" if head.relative_positions is None else some(map(str, head.relative_positions)),
        )
        for head in program.heads.values()
    ]
    return Report(
        repr(program),
        (
            Section("", facts),
            Section("variables", variables, ("", "values", "start")),
            *([Section("heads", heads, ("", "read", "where", "at distance"))] if heads else []),
            *_rule_counts(program),
        ),
    )


def _compares(program: Program, query: str) -> str:
    return "in" if isinstance(program.variables[query].domain, SetOf) else "="


def _rule_counts(program: Program) -> Iterable[Section]:
    try:
        rules = program.rules
    except LoweringError as error:
        yield Section("rules", [(str(error),)])
        return
    counts = Counter(rule.output for rule in rules.core)
    rows = [(f"{number:,}", f"for {name}") for name, number in counts.most_common()]
    rows.append((f"{len(rules.resets):,}", "resets of what heads have written"))
    rows.append((f"{len(rules.traps):,}", "traps"))
    yield Section("rules", rows, numbers=frozenset({0}))


@describe.register
def _(rules: RuleSet) -> Report:
    core, left_out = first([_implication(rule) for rule in rules.core], MOST_RULES, "rules")
    sections = [Section("", core, ("where", "", "then"), left_out=left_out)]
    if rules.traps:
        traps, left_out = first([_implication(trap) for trap in rules.traps], MOST_RULES, "traps")
        sections.append(Section("traps", traps, ("where", "", "because"), left_out=left_out))
    return Report(repr(rules), tuple(sections))


def _implication(entry: Rule | Trap) -> tuple[str, str, str]:
    left, _, right = str(entry).partition(" ⟹ ")
    return left, "⟹", right


@describe.register
def _(trace: Trace) -> Report:
    states = trace.states
    names = declared(trace.program.variables)
    header = ["", "", *(name.replace("attention", "attn") for name, _ in states[:MOST_STATES])]
    rows = []
    for position, token in enumerate(trace.inputs):
        for number, name in enumerate(names):
            cells: list[Cell | str] = [f"{position} {token}" if number == 0 else "", name]
            before = states[0][1][position][name]
            for _, state in states[:MOST_STATES]:
                value = state[position][name]
                cells.append(Cell(format_value(value), marked=value != before))
                before = value
            rows.append(cells)
    shown, left_out = first(rows, max(MOST_ROWS // len(names), 1) * len(names) if names else 0, "rows")
    later = len(states) - MOST_STATES
    notes = [left_out, f"{later:,} more states are not shown"] if later > 0 else [left_out]
    return Report(repr(trace), (Section("", shown, header, left_out="; ".join(filter(None, notes))),))


@describe.register
def _(run: Run) -> Report:
    return Report(repr(run), describe(run.trace).sections)


def _model(title: str, weights: Weights) -> Report:
    bound = "any length" if weights.max_length is None else f"up to {amount(weights.max_length, 'token')}"
    facts = [
        ("inputs", bound + (", causal" if weights.causal else "")),
        ("exact in", weights.dtype + ("" if weights.dtype == "float64" else " and wider formats")),
        ("layers", "shared, until every position has halted" if weights.shared else f"{len(weights.layers)}"),
        ("MLP", f"{weights.activation} ReLUs, {listing(_widths(weights.layers[0].mlp))} wide"),
    ]
    layer = weights.layers[0]
    matrices = [("embeddings of tokens", weights.tokens)]
    matrices += [("embeddings of positions", weights.positions)] if weights.positions is not None else []
    for head in layer.heads:
        matrices += [(f"{head.name}: {part}", getattr(head, part)) for part in ("query", "key", "value", "output")]
    matrices += [(f"MLP: W{number}", linear.weight) for number, linear in enumerate(layer.mlp, start=1)]
    matrices += [("read-out", weights.output)]
    rows, left_out = first([_matrix(*matrix) for matrix in matrices], MOST_ROWS, "matrices")
    program = from_data(weights.program)
    slices = encode(program, precision_of(weights.dtype)).layout.slices
    places = [
        (name, f"{part.start}..{part.stop - 1}" if part.stop - part.start > 1 else f"{part.start}")
        for name, part in slices.items()
        if name in declared(slices)
    ]
    kept, dims_left_out = first(places, MOST_ROWS, "variables")
    return Report(
        title,
        (
            Section("", facts),
            Section("residual stream", kept, ("", "dimensions"), left_out=dims_left_out),
            Section("matrices", rows, ("", "shape", "not zero"), frozenset({1, 2}), left_out),
        ),
    )


@describe.register
def _(model: Model) -> Report:
    return _model(repr(model), model.weights)


def _widths(mlp: Sequence[Linear]) -> list[str]:
    return [f"{linear.weight.shape[0]:,}" for linear in mlp[:-1]]


def _matrix(name: str, matrix: Sparse) -> tuple[str, str, str]:
    return name, f"{matrix.shape[0]:,} × {matrix.shape[1]:,}", f"{len(matrix):,}"


@describe.register
def _(certificate: Certificate) -> Report:
    first_line, *rest = str(certificate).splitlines()
    return Report(repr(certificate), (Section("", [(line.strip(),) for line in (first_line, *rest)]),))


@describe.register
def _(seen: Coverage) -> Report:
    facts = [line.split("  ", 1) for line in str(seen).splitlines()[1:4]]
    values, domains = seen.values, seen.program.variables
    rows = [
        (
            name,
            f"{len(values[name]):,} of {len(domains[name].domain.values) or 'all':,}",
            some(map(format_value, values[name])),
        )
        for name in declared(domains)
    ]
    shown, left_out = first(rows, MOST_ROWS, "variables")
    busiest = sorted(seen.fired.items(), key=lambda item: -item[1])
    rules, rules_left_out = first([(f"{n:,}", str(rule)) for rule, n in busiest], MOST_RULES, "rules that fired")
    return Report(
        repr(seen),
        (
            Section("", [[text.strip() for text in fact] for fact in facts]),
            Section("values", shown, ("", "seen", ""), left_out=left_out),
            Section("rules by how often they fired", rules, numbers=frozenset({0}), left_out=rules_left_out),
        ),
    )


@describe.register
def _(small: Minimal) -> Report:
    return Report(repr(small), describe(small.program).sections)


@describe.register
def _(found: Prediction) -> Report:
    rows = [
        (str(group), f"{number:,}", f"{original / number:.1%}", Cell(f"{small / number:.1%}", marked=small < original))
        for group, (number, original, small) in found.groups.items()
    ]
    shown, left_out = first(rows, MOST_ROWS, "groups")
    failures = [(" ".join(map(str, f.inputs)), "; ".join(f.reasons)) for f in found.failures]
    return Report(
        repr(found),
        (
            Section("accuracy", shown, ("", "inputs", "original", "minimal"), frozenset({1, 2, 3}), left_out),
            *([Section("the first that fail", failures)] if failures else []),
        ),
    )


def starts(start: Start, tokens: Sequence[Token]) -> str:
    """Where a variable starts, in words."""
    match start:
        case FromToken(table):
            return f"from the token: {_table(tokens, table)}"
        case FromPosition(table):
            return f"from the position: {_table(range(len(table)), table)}"
        case Constant(value):
            return format_value(value)
        case Output():
            return "∅"


def _table(keys: Sequence[object], table: Sequence[Value]) -> str:
    if len(set(table)) == len(table) and list(table) == list(range(len(table))):
        return "its number"
    by_value: dict[Value, list[str]] = {}
    for key, value in zip(keys, table, strict=True):
        by_value.setdefault(value, []).append(str(key))
    commonest = max(by_value, key=lambda value: len(by_value[value]))
    if len(by_value) == 2 and len(by_value[commonest]) > 1:
        (other,) = by_value.keys() - {commonest}
        return f"{format_value(other)} for {some(by_value[other])}, otherwise {format_value(commonest)}"
    return some(f"{', '.join(keys)} → {format_value(value)}" for value, keys in by_value.items())


def some(texts: Iterable[str]) -> str:
    """The first few, and how many there are."""
    found = list(texts)
    if len(found) <= MOST_VALUES + 1:
        return ", ".join(found)
    return f"{', '.join(found[: MOST_VALUES - 2])}, … {found[-1]} ({len(found):,})"
