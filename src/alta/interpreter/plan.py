"""A program as the batch interpreter runs it: values as numbers, heads by how they select, rules as tries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from alta.errors import amount
from alta.interpreter.tries import Codes, Tries, grow
from alta.language.program import Head, Program
from alta.language.variables import (
    Constant,
    FromPosition,
    FromToken,
    Numerical,
    Output,
    SetOf,
    Value,
    Variable,
    declared,
)


@dataclass(frozen=True, eq=False)
class Start:
    """Where a variable starts: a code for each token, for each position, or (`source` is "constant") one for all."""

    source: str
    codes: Codes


@dataclass(frozen=True, eq=False)
class Column:
    """A variable. Its value is the code's entry in `values`; the code `undefined` is UNDEFINED."""

    name: str
    values: tuple[Value, ...]
    start: Start | None  # None for what heads write
    uniform: bool  # whether it is the same at all positions, always
    dtype: np.dtype[np.signedinteger | np.unsignedinteger]

    @property
    def undefined(self) -> int:
        """The code of UNDEFINED."""
        return max(len(self.values), 1)


@dataclass(frozen=True, eq=False)
class Selection:
    """Which positions heads read. Heads with the same query, key and relative positions share one."""

    query: int
    key: int
    member: NDArray[np.bool_] | None  # (query code, key code), where the query is a set
    relative: tuple[int, ...] | None
    always: bool  # query and key never change, and match
    uniform: bool  # all positions read the same ones

    @property
    def shift(self) -> int | None:
        """The distance of the neighbour that each position reads, if that is all it does."""
        return self.relative[0] if self.always and self.relative is not None and len(self.relative) == 1 else None


@dataclass(frozen=True, eq=False)
class Mean:
    """Exact means in whole numbers: the value with code c is `origin + step[c] * unit`."""

    origin: Fraction
    unit: Fraction
    steps: tuple[int, ...]
    edges: tuple[Fraction, ...]  # between buckets, in steps
    _limits: dict[int, NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def limits(self, count: int) -> NDArray[np.int64]:
        """For each edge, the largest sum of `count` steps whose mean is not above it."""
        if count not in self._limits:
            whole = [edge.numerator * count // edge.denominator for edge in self.edges]
            bound = 2**62
            self._limits[count] = np.array([min(max(number, -bound), bound) for number in whole], np.int64)
        return self._limits[count]

    def fits(self, length: int) -> bool:
        """Whether sums of so many steps fit 64 bits."""
        return max(self.steps) * (length + 1) < 2**62

    def value(self, total: int, count: int) -> Fraction:
        """The mean, of `count` values whose steps have this sum."""
        return self.origin + self.unit * Fraction(total, count)


@dataclass(frozen=True, eq=False)
class HeadPlan:
    """A head: what it reads, and what it writes."""

    output: int
    value: int
    selection: int
    mean: Mean | None  # for numbers


@dataclass(frozen=True, eq=False)
class Plan:
    """How a program runs. `print(plan)` shows it."""

    program: Program
    columns: tuple[Column, ...]
    selections: tuple[Selection, ...]
    heads: tuple[HeadPlan, ...]
    head_of: Mapping[int, int]  # from what it writes to the head
    tries: Tries
    new: Codes  # (core rule): the code that it sets
    first_reset: Mapping[int, int]  # for each head's output, the number of the rule that resets its first value
    dispatch: Mapping[int, tuple[tuple[tuple[int, int], ...], ...]]
    """For each uniform variable that is the first of some tries: for each of its codes, these tries and where they go
    on."""
    others: tuple[int, ...]  # tries that begin in another way
    output: int
    halt: tuple[int, int] | None  # variable and code

    def __str__(self) -> str:
        return describe(self)


def plan(program: Program) -> Plan:
    """The program's plan, made once."""
    found: Plan | None = program.__dict__.get("_plan")
    if found is None:
        found = _plan(program)
        program.__dict__["_plan"] = found
    return found


def _plan(program: Program) -> Plan:
    rules = program.rules
    names = {name: number for number, name in enumerate(program.variables)}
    tables = [_table(variable) for variable in program.variables.values()]
    codes: list[dict[Value, int]] = [{value: code for code, value in enumerate(table)} for table in tables]
    set_by_rules = {names[rule.output] for rule in rules.core}
    starts = [_start(v, codes[i]) for i, v in enumerate(program.variables.values())]
    frozen = {i for i, start in enumerate(starts) if start is not None and start.source == "constant"} - set_by_rules
    selections: dict[tuple[str, str, tuple[int, ...] | None], int] = {}
    heads = []
    for head in program.heads.values():
        key = head.query, head.key, None if head.relative_positions is None else tuple(sorted(head.relative_positions))
        which = selections.setdefault(key, len(selections))
        value = names[head.value]
        heads.append(HeadPlan(names[head.name], value, which, _mean(program, head, tables[value])))
    uniform = _uniform(program, names, starts, set_by_rules)
    found = [
        _selection(program, names, tables, starts, frozen, uniform, query, key, near) for query, key, near in selections
    ]
    outputs = frozenset(head.output for head in heads)
    shares = _shares(program, names, tables, starts, set_by_rules)
    tries = grow(rules.core, rules.traps, names, codes, outputs, uniform, shares)
    dispatch, others = _dispatch(tries, uniform, [len(table) for table in tables], outputs)
    return Plan(
        program=program.lowered(),
        columns=tuple(
            Column(name, tables[i], starts[i], i in uniform, _dtype(len(tables[i]) + 1)) for name, i in names.items()
        ),
        selections=tuple(found),
        heads=tuple(heads),
        head_of={head.output: number for number, head in enumerate(heads)},
        tries=tries,
        new=np.array([codes[names[rule.output]][rule.new] for rule in rules.core], np.int32),  # type: ignore[index]
        first_reset=_first_resets(program, names),
        dispatch=dispatch,
        others=others,
        output=names[program.output],
        halt=None if program.halt is None else (names[program.halt.variable], int(program.halt.value)),  # type: ignore[arg-type]
    )


def _first_resets(program: Program, names: Mapping[str, int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, reset in enumerate(program.rules.resets, start=len(program.rules.core)):
        found.setdefault(names[reset.output], number)
    return found


def _dtype(codes: int) -> np.dtype[np.signedinteger | np.unsignedinteger]:
    return np.dtype(np.uint8 if codes <= 2**8 else np.uint16 if codes <= 2**16 else np.int32)


def _table(variable: Variable) -> tuple[Value, ...]:
    """The values that codes stand for: those of the domain, or for a number without buckets, where it starts."""
    if variable.domain.values or variable.is_output:
        return variable.domain.values
    match variable.start:
        case FromToken(table) | FromPosition(table):
            return tuple(dict.fromkeys(table))
        case Constant(value):
            return (value,)
        case _:
            return ()


def _start(variable: Variable, codes: Mapping[Value, int]) -> Start | None:
    match variable.start:
        case FromToken(table):
            start = Start("token", np.array([codes[value] for value in table], np.int32))
        case FromPosition(table):
            start = Start("position", np.array([codes[value] for value in table], np.int32))
        case Constant(value):
            start = Start("constant", np.array([codes[value]], np.int32))
        case Output():
            return None
    return Start("constant", start.codes[:1]) if len(set(start.codes.tolist())) == 1 else start


def _shares(
    program: Program,
    names: Mapping[str, int],
    tables: Sequence[tuple[Value, ...]],
    starts: Sequence[Start | None],
    set_by_rules: set[int],
) -> list[NDArray[np.float64]]:
    """How often each code of a variable may be met: as at the start, if every token is as frequent as every other; for
    what rules set, half of that and half evenly; for what a head reads, as in what it reads from."""
    found = []
    for number, (table, start) in enumerate(zip(tables, starts, strict=True)):
        even = np.full(len(table), 1 / max(len(table), 1))
        if start is not None:
            first = np.bincount(start.codes, minlength=len(table)) / len(start.codes)
            even = (first + even) / 2 if number in set_by_rules else first
        found.append(even)
    for head in program.heads.values():
        if not isinstance(program.variables[head.name].domain, Numerical):
            read = found[names[head.value]]
            found[names[head.name]] = np.pad(read, (0, len(tables[names[head.name]]) - len(read)))
    return found


def _uniform(
    program: Program, names: Mapping[str, int], starts: Sequence[Start | None], set_by_rules: set[int]
) -> frozenset[int]:
    """What starts the same everywhere, and is only set where what the rules look at is the same everywhere."""
    looked_at: dict[int, set[int]] = {i: set() for i in set_by_rules}
    seen: set[tuple[str, ...]] = set()
    for rule in program.rules.core:
        shape = (rule.output, *(constraint.variable for constraint in rule.antecedent))
        if shape not in seen:
            seen.add(shape)
            looked_at[names[rule.output]].update(names[name] for name in shape[1:])
    queries = {
        names[head.name]: names[head.query]
        for head in program.heads.values()
        if head.relative_positions is None and not program.causal
    }
    found = {i for i, start in enumerate(starts) if start is not None and start.source == "constant"} | queries.keys()
    while True:
        kept = {i for i in found if (queries[i] in found if i in queries else looked_at.get(i, set()) <= found)}
        if kept == found:
            return frozenset(found)
        found = kept


def _selection(
    program: Program,
    names: Mapping[str, int],
    tables: Sequence[tuple[Value, ...]],
    starts: Sequence[Start | None],
    frozen: set[int],
    uniform: frozenset[int],
    query: str,
    key: str,
    relative: tuple[int, ...] | None,
) -> Selection:
    q, k = names[query], names[key]
    member = None
    if isinstance(program.variables[query].domain, SetOf):
        member = np.array([[code in members for code in tables[k]] for members in tables[q]])  # type: ignore[operator]
    always = False
    q_start, k_start = starts[q], starts[k]
    if q in frozen and k in frozen and q_start is not None and k_start is not None:
        a, b = int(q_start.codes[0]), int(k_start.codes[0])
        always = bool(member[a, b]) if member is not None else a == b
    return Selection(q, k, member, relative, always, relative is None and not program.causal and q in uniform)


def _mean(program: Program, head: Head, values: Sequence[Value]) -> Mean | None:
    domain = program.variables[head.name].domain
    if not isinstance(domain, Numerical):
        return None
    exact = [Fraction(value) for value in values]  # type: ignore[arg-type]
    origin = min(exact)
    scale = lcm(*((value - origin).denominator for value in exact))
    whole = [int((value - origin) * scale) for value in exact]
    common = gcd(*whole) or 1
    unit = Fraction(common, scale)
    buckets = [Fraction(value) for value in domain.values]
    edges = tuple(((low + high) / 2 - origin) / unit for low, high in pairwise(buckets))
    return Mean(origin, unit, tuple(number // common for number in whole), edges)


def _dispatch(
    tries: Tries, uniform: frozenset[int], sizes: Sequence[int], outputs: frozenset[int]
) -> tuple[dict[int, tuple[tuple[tuple[int, int], ...], ...]], tuple[int, ...]]:
    tables: dict[int, list[list[tuple[int, int]]]] = {}
    others = []
    for trie, levels in enumerate(tries.levels):
        if not levels or levels[0] not in uniform:
            others.append(trie)
            continue
        first = levels[0]
        wide = max(sizes[first], 1) + (first in outputs)
        table = tables.setdefault(first, [[] for _ in range(wide)])
        for code, then in enumerate(children(tries, np.full(wide, tries.roots[trie]), np.arange(wide)).tolist()):
            if then != -1:
                table[code].append((trie, then))
    return {first: tuple(map(tuple, table)) for first, table in tables.items()}, tuple(others)


def children(tries: Tries, nodes: NDArray[np.integer], codes: NDArray[np.integer]) -> NDArray[np.int32]:
    """Where the nodes lead to for the codes."""
    bases = tries.base[nodes]
    found: Codes
    if not len(tries.key):
        found = tries.child[bases + codes]
        return found
    dense = bases >= 0
    found = np.full(bases.shape, -1, np.int32)
    found[dense] = tries.child[(bases + codes)[dense]]
    wanted = (nodes.astype(np.int64) * tries.width + codes)[~dense]
    places = np.minimum(np.searchsorted(tries.key, wanted), len(tries.key) - 1)
    found[~dense] = np.where(tries.key[places] == wanted, tries.target[places], -1)
    return found


def describe(plan: Plan) -> str:
    """The plan as people read it."""
    names = [column.name for column in plan.columns]

    def listed(numbers: Sequence[int]) -> str:
        return ", ".join(declared(names[number] for number in numbers)) or "none"

    everywhere = [i for i, column in enumerate(plan.columns) if column.uniform]
    lines = [
        "the same at all positions, so computed once for each input:",
        f"  {listed(everywhere)}",
        "different from position to position:",
        f"  {listed([i for i in range(len(names)) if i not in everywhere])}",
        f"selections, {len(plan.selections)} for {amount(len(plan.heads), 'head')}:",
    ]
    for number, selection in enumerate(plan.selections):
        of = listed([head.output for head in plan.heads if head.selection == number])
        lines.append(f"  {_how(selection, names)}: {of}")
    lines.append(f"tries, {len(plan.tries.roots)} with {plan.tries.nodes:,} nodes for {amount(len(plan.new), 'rule')}:")
    for trie, levels in enumerate(plan.tries.levels):
        owner = int(plan.tries.owner[trie])
        looks = " → ".join(names[v] + ("" if v in everywhere else "*") for v in levels) or "always"
        lines.append(f"  {'traps' if owner < 0 else names[owner]}: {looks}")
    if plan.tries.levels:
        lines.append("  (* is looked up at each position)")
    return "\n".join(lines)


def _how(selection: Selection, names: Sequence[str]) -> str:
    if selection.shift is not None:
        return f"the neighbour at {selection.shift:+d}"
    near = "" if selection.relative is None else f" at {', '.join(f'{offset:+d}' for offset in selection.relative)}"
    if selection.always:
        return f"every position{near}"
    matches = "is" if selection.member is None else "is in"
    once = ", once for all positions" if selection.uniform else ""
    return f"where {names[selection.key]} {matches} {names[selection.query]}{near}{once}"
