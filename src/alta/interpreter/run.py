"""The meaning of a program, plainly. Everything faster is checked against this file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import assert_never

from alta.errors import EndlessError, InputError, ProgramError, TrapError, UndefinedError, listing
from alta.interpreter.trace import Assignment, Generation, Layer, Run, State, Trace
from alta.language.program import Head, Program, Token
from alta.language.rules import Rule, Trap
from alta.language.variables import (
    NULL,
    UNDEFINED,
    Categorical,
    Cell,
    Constant,
    FromPosition,
    FromToken,
    Numerical,
    Output,
    Variable,
)


def run(program: Program, inputs: Iterable[Token], max_layers: int | None = None) -> Run:
    """Runs the program: until it halts, for at most `max_layers` layers.

    Raises TrapError or UndefinedError where the program has no meaning, EndlessError where it would run for ever, and
    InputError for inputs that do not fit.

    >>> found = alta.run(program, ["START", "1", "0"])
    >>> found.outputs, found.layers, found.halted
    ((0, 1, 1), 2, True)
    """
    check_layers(program, max_layers)
    given = tuple(inputs) if isinstance(inputs, Iterable) else inputs
    state = start = landmark = initial_state(program, program.encode(given))
    layers: list[Layer] = []
    while not (halted := has_halted(program, state)) and (max_layers is None or len(layers) < max_layers):
        attended = attention(program, state)
        state, fired = mlp(program, attended, layer=len(layers) + 1)
        layers.append(Layer(attended, state, fired))
        if max_layers is None and state == landmark:
            raise EndlessError("the state is one that the run has been in before, so it never halts", len(layers))
        if len(layers).bit_count() == 1:  # a state that comes back is met between two powers of two
            landmark = state
    outputs = tuple(assignment[program.output] for assignment in state)
    return Run(outputs, len(layers), halted, Trace(program, given, start, tuple(layers)))


def check_layers(program: Program, max_layers: int | None) -> None:
    """Refuses runs without an end."""
    if program.halt is None and max_layers is None:
        raise InputError("this program has no halting condition, so it needs max_layers")
    if max_layers is not None and (not isinstance(max_layers, int) or max_layers < 0):
        raise InputError(f"max_layers is a whole number, 0 or more; got {max_layers!r}")


def generate(
    program: Program,
    prompt: Iterable[Token],
    *,
    stop: Token | None = None,
    max_tokens: int = 1000,
    max_layers: int | None = None,
) -> Generation:
    """Lets a causal program write: the output of the last position is appended to the input, and the program run again,
    until it writes `stop` (which is kept) or `max_tokens` tokens, or has no position left.

    >>> written = alta.generate(parity.scratchpad(), ["START", "1", "0", "1", "="], stop="END")
    >>> written.tokens, written.stopped
    (('1', '1', '0', 'END'), True)
    """
    check_generation(program, stop)
    prompt = tuple(prompt)
    if not prompt:
        raise InputError("the prompt is empty, so there is no last position to read an output from")
    runs: list[Run] = []
    tokens: list[Token] = []
    while len(tokens) < max_tokens and (not tokens or tokens[-1] != stop):
        inputs = (*prompt, *tokens)
        if tokens and program.positions is not None and len(inputs) > program.positions:
            break
        runs.append(run(program, inputs, max_layers))
        output = runs[-1].outputs[-1]
        assert isinstance(output, int)
        tokens.append(program.tokens[output])
    return Generation(prompt, tuple(tokens), bool(tokens) and tokens[-1] == stop, tuple(runs))


def initial_state(program: Program, tokens: Iterable[int]) -> State:
    """Every variable at every position, from the token, the position, or a constant. Outputs of heads are NULL."""
    columns = {name: column for column, name in enumerate(program.variables)}
    return tuple(
        Assignment(columns, tuple(_start(variable, token, position) for variable in program.variables.values()))
        for position, token in enumerate(tokens)
    )


def has_halted(program: Program, state: State) -> bool:
    """Whether every position has the halt value. No position at all has nothing to do."""
    if not state:
        return True
    return program.halt is not None and all(a[program.halt.variable] == program.halt.value for a in state)


def attention(program: Program, state: State) -> State:
    """All heads in parallel: each reads the state as it was when the sub-layer began."""
    outputs = {head.name: _read(program, head, state) for head in program.heads.values()}
    return tuple(
        assignment.changed({name: values[position] for name, values in outputs.items()})
        for position, assignment in enumerate(state)
    )


def select(program: Program, head: Head, state: State) -> list[list[int]]:
    """For each position, the positions that it reads."""
    holders: dict[Cell, list[int]] = {}
    for position, assignment in enumerate(state):
        holders.setdefault(assignment[head.key], []).append(position)
    selection = []
    for i, assignment in enumerate(state):
        query = assignment[head.query]
        wanted = query if isinstance(query, frozenset) else {query}
        if head.relative_positions is None:
            found = [j for key in wanted for j in holders.get(key, ())]
        else:
            near = [i + offset for offset in head.relative_positions if 0 <= i + offset < len(state)]
            found = [j for j in near if state[j][head.key] in wanted]
        selection.append(sorted(j for j in found if j <= i or not program.causal))
    return selection


def _read(program: Program, head: Head, state: State) -> list[Cell]:
    numerical = isinstance(program.variables[head.value].domain, Numerical)
    aggregate = _mean if numerical else _only
    values = [assignment[head.value] for assignment in state]
    return [aggregate([values[j] for j in positions]) for positions in select(program, head, state)]


def _only(selected: list[Cell]) -> Cell:
    """Exactly one selected position gives its value."""
    return selected[0] if len(selected) == 1 else UNDEFINED


def _mean(selected: list[Cell]) -> Cell:
    """The exact mean of the selected positions: no rounding moves it over the edge of a bucket."""
    if not selected:
        return UNDEFINED
    total = sum((Fraction(value) * count for value, count in Counter(selected).items()), Fraction(0))  # type: ignore[arg-type]
    return total / len(selected)


def mlp(program: Program, state: State, layer: int) -> tuple[State, tuple[tuple[Rule, ...], ...]]:
    """The new assignment of each position, and the rules that fired there."""
    after: list[Assignment] = []
    fired: list[tuple[Rule, ...]] = []
    for position, assignment in enumerate(state):
        seen = _snapped(program, assignment)
        found = program.rules.match(seen)
        if found.traps:
            raise _trapped(found.traps[0], layer, position)
        if found.undefined:
            raise _undefined(program, state, found.undefined[0][1], layer, position)
        updates: dict[str, Cell] = {rule.output: rule.new for rule in found.rules}
        after.append(assignment.changed(updates | dict.fromkeys(program.heads, NULL)))
        fired.append(tuple(found.rules))
    return tuple(after), tuple(fired)


def _snapped(program: Program, assignment: Assignment) -> Assignment:
    """What the MLP sees: the nearest bucket of each mean."""
    means = {
        name: program.variables[name].snap(value)
        for name in program.heads
        if isinstance(value := assignment[name], Fraction) and program.variables[name].domain.values
    }
    return assignment.changed(means) if means else assignment


def _start(variable: Variable, token: int, position: int) -> Cell:
    match variable.start:
        case FromToken(table):
            return table[token]
        case FromPosition(table):
            return table[position]
        case Constant(value):
            return value
        case Output():
            return NULL
        case _:
            assert_never(variable.start)


def _trapped(trap: Trap, layer: int, position: int) -> TrapError:
    where = listing(trap.antecedent) if trap.antecedent else "it runs"
    return TrapError(f"the MLP traps where {where}: {trap.reason}", layer, position, trap.variable)


def _undefined(program: Program, state: State, variable: str, layer: int, position: int) -> UndefinedError:
    selected = select(program, program.heads[variable], state)[position]
    reason = f"its head reads {len(selected)} positions, not one" if selected else "its head reads no position"
    return UndefinedError(f"the MLP reads {variable!r}, which is UNDEFINED: {reason}", layer, position, variable)


def check_generation(program: Program, stop: Token | None) -> None:
    """Refuses to generate with what cannot."""
    if not program.causal:
        raise ProgramError("only a causal program can generate; build it with program_spec(..., causal=True)")
    output = program.variables[program.output].domain
    if not isinstance(output, Categorical) or output.size > len(program.tokens):
        raise ProgramError(
            f"to generate, the output {program.output!r} has to stand for a token: a categorical variable with a range "
            f"of at most {len(program.tokens)}"
        )
    if stop is not None and stop not in program.tokens:
        raise InputError(f"the stop token {stop!r} is not a token of this program; tokens: {program.describe_tokens()}")
