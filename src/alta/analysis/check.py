"""What there is to say of a program before it is used: what it does not need, what it cannot do, where it stops, and
whether it can be compiled."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice, product
from typing import TypeAlias

from alta.analysis.reach import held, matches, needed, possible
from alta.compiler.compile import compile
from alta.errors import CompileError, amount, listing
from alta.interpreter.batch import BatchRun, run_batch
from alta.language.program import Program, Token
from alta.language.variables import Categorical, Numerical, declared, format_value
from alta.model.forward import Model

TRIED = 1000
"""Inputs that are tried where none are given: the shortest, and half as many longer ones."""

LONGEST = 12
"""The most tokens of inputs that are tried."""

LAYERS = 200
"""For how many layers inputs are tried. A program without a halting condition stops after the eight first."""

KINDS = 3
"""Of errors that differ, and of traps, so many are shown."""


class Severity(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing to know of a program, with what to do about it."""

    severity: Severity
    text: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((f"{self.severity.value:7}  {self.text}", *(f"{'':9}  {detail}" for detail in self.details)))


@dataclass(frozen=True)
class Check:
    """What `check` finds."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What keeps the program from being used as it is meant."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.PROBLEM)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))

    def __repr__(self) -> str:
        counts = Counter(finding.severity for finding in self.findings)
        return f"<check: {counts[Severity.PROBLEM]} problems, {counts[Severity.NOTE]} notes>"


def check(
    program: Program,
    inputs: Iterable[Sequence[Token]] | None = None,
    *,
    max_layers: int | None = None,
    dtype: str = "float32",
    max_length: int | None = None,
    seed: int = 0,
) -> Check:
    """What a program is, does not need, and cannot do.

    `inputs` are those that it has to work on: an error on one of them is a problem. Without them, short inputs of all
    forms are tried, and some that are longer; there errors are notes, since many inputs are none that a program is
    meant for.
    """
    return Check(
        (
            *_shape(program),
            *_unused(program),
            *_tried(program, inputs, max_layers, seed),
            *_compiled(program, dtype, max_length),
        )
    )


def _ok(text: str) -> Finding:
    return Finding(Severity.OK, text)


def _note(text: str, details: tuple[str, ...] = ()) -> Finding:
    return Finding(Severity.NOTE, text, details)


def _shape(program: Program) -> Iterator[Finding]:
    own = declared(program.variables.keys() - program.heads.keys())
    length = "any length" if program.positions is None else f"up to {amount(program.positions, 'token')}"
    sizes = {"variable": len(own), "head": len(program.heads), "token": len(program.tokens)}
    parts = ", ".join(amount(size, noun) for noun, size in sizes.items())
    yield _ok(f"{parts}; inputs of {length}{', causal' if program.causal else ''}")
    rules = program.rules
    outputs = declared(name for name in program.variables if any(rule.output == name for rule in rules.core))
    yield _ok(f"{amount(len(rules.core), 'rule')} for {listing(outputs)}, and {amount(len(rules.resets), 'reset')}")
    if program.halt is None:
        yield _note("no halting condition, so every run needs max_layers; give program_spec a halt_spec to change that")
    else:
        yield _ok(f"halts where {program.halt.variable} is {format_value(program.halt.value)} at every position")


def _unused(program: Program) -> Iterator[Finding]:
    rules, values, used = program.rules, held(program), needed(program)
    compared = {*program.heads, *(name for head in program.heads.values() for name in (head.query, head.key))}
    for name in declared(program.variables):
        head = program.heads.get(name)
        if name not in used:
            what = f"head {name!r}" if head else f"variable {name!r}"
            yield _note(f"{what} changes neither output nor halting; leave it out")
        elif head is not None and not matches(head, values):
            yield _note(f"head {name!r} never reads: no value of {head.key!r} is one that {head.query!r} asks for")
        elif name not in compared and isinstance(domain := program.variables[name].domain, Categorical):
            most = max(domain.admit(value) for value in values[name])
            if most == 0 < domain.size - 1:
                yield _note(f"{name!r} is always 0")
            elif most < domain.size - 1:
                yield _note(f"{name!r} never gets above {most}; range={most + 1} is enough")
    if (halt := program.halt) and halt.value not in values[halt.variable]:
        text = f"{halt.variable!r} never becomes {format_value(halt.value)}, so no input of a token or more halts"
        yield Finding(Severity.PROBLEM, f"{text}; set it in the MLP")
    never = sum(not possible(rule, values) for rule in rules.core)
    if never:
        yield _note(f"{never:,} of {amount(len(rules.core), 'rule')} can never fire: their values are never held")
    open_traps = [trap for trap in rules.traps if possible(trap, values)]
    if rules.traps:
        text = f"{amount(len(rules.traps), 'trap')}, of which {len(open_traps):,} may be reached"
        yield _note(text, _some(map(str, open_traps)))


def _tried(
    program: Program, inputs: Iterable[Sequence[Token]] | None, max_layers: int | None, seed: int
) -> Iterator[Finding]:
    most = max_layers if max_layers is not None else 8 if program.halt is None else LAYERS
    runs = _try_short(program, most, seed) if inputs is None else _run(program, inputs, most)
    what = f"of {amount(len(runs), 'input')} {'that were tried' if inputs is None else 'given'}"
    severity = Severity.NOTE if inputs is None else Severity.PROBLEM
    kinds: defaultdict[tuple[type, str], list[_Tried]] = defaultdict(list)
    waiting: list[Sequence[Token]] = []
    for tokens, run in runs:
        if run.error is not None:
            kinds[type(run.error), run.error.reason].append((tokens, run))
        elif program.halt is not None and not run.halted:
            waiting.append(tokens)
    if waiting:
        text = f"{len(waiting):,} {what} had not halted after {amount(most, 'layer')}"
        yield Finding(severity, text, (_text(min(waiting, key=len)),))
    if kinds:
        shortest_of = [min(kind, key=lambda one: len(one[0])) for kind in sorted(kinds.values(), key=len, reverse=True)]
        details = _some(f"{_text(tokens)}: {run.error}" for tokens, run in shortest_of)
        yield Finding(severity, f"{sum(map(len, kinds.values())):,} {what} stop with an error", details)
    if not waiting and not kinds:
        ends = "run" if program.halt is None else f"halt within {amount(most, 'layer')},"
        yield _ok(f"all {what} {ends} without an error")


_Tried: TypeAlias = tuple[Sequence[Token], BatchRun]


def _try_short(program: Program, most: int, seed: int) -> list[_Tried]:
    """The shortest inputs, and longer ones: what worked, with tokens put in at random."""
    longest = min(LONGEST, program.positions or LONGEST)
    every = chain.from_iterable(product(program.tokens, repeat=length) for length in range(1, longest + 1))
    runs = _run(program, islice(every, TRIED), most)
    good = [tokens for tokens, run in runs if run.error is None and (run.halted or program.halt is None)] or [()]
    generator = random.Random(seed)
    drawn = []
    for _ in range(TRIED // 2):
        tokens = [*generator.choice(good)]
        for _ in range(generator.randint(len(tokens), longest) - len(tokens)):
            tokens.insert(generator.randint(0, len(tokens)), generator.choice(program.tokens))
        drawn.append(tokens)
    return runs + _run(program, drawn, most)


def _run(program: Program, inputs: Iterable[Sequence[Token]], most: int) -> list[_Tried]:
    batch = list(inputs)
    return list(zip(batch, run_batch(program, batch, most, engine="numpy", progress=False), strict=True))


def _compiled(program: Program, dtype: str, max_length: int | None) -> Iterator[Finding]:
    found = _attempt(program, dtype, max_length)
    if isinstance(found, Model):
        bound = found.weights.max_length
        length = "any length" if bound is None else f"up to {amount(bound, 'token')}"
        yield _ok(f"a Transformer, exact in {dtype} for inputs of {length}: {found!r}")
        return
    takes_means = any(isinstance(program.variables[name].domain, Numerical) for name in program.heads)
    if takes_means and program.positions is None and max_length is None:
        longest = _longest(program, dtype)
        if longest:
            model = compile(program, dtype=dtype, max_length=longest)
            text = f"it takes means, so compile needs a max_length, of up to {longest:,} in {dtype}"
            yield _note(f"a Transformer for inputs of a bounded length: {text}", (repr(model),))
            return
        found = _attempt(program, dtype, max_length=1)
    wider = isinstance(_attempt(program, "float64", max_length or 1), Model)
    way_out = "; in float64 there is one: compile(program, dtype='float64')" if wider else ""
    yield Finding(Severity.PROBLEM, f"no Transformer in {dtype}: {found}{way_out}")


def _attempt(program: Program, dtype: str, max_length: int | None) -> Model | CompileError:
    try:
        return compile(program, dtype=dtype, max_length=max_length)
    except CompileError as error:
        return error


def _longest(program: Program, dtype: str) -> int:
    """The longest input that the program can be compiled for, up to a million tokens; 0 if there is none."""
    good, bad = 0, 1
    while bad <= 2**20 and isinstance(_attempt(program, dtype, bad), Model):
        good, bad = bad, 2 * bad
    while bad - good > 1:
        middle = (good + bad) // 2
        if isinstance(_attempt(program, dtype, middle), Model):
            good = middle
        else:
            bad = middle
    return good


def _some(items: Iterable[str]) -> tuple[str, ...]:
    lines = list(items)
    more = [f"and {len(lines) - KINDS:,} more"] if len(lines) > KINDS else []
    return (*lines[:KINDS], *more)


def _text(tokens: Sequence[Token]) -> str:
    return repr(" ".join(map(str, tokens))) if tokens else "the empty input"
