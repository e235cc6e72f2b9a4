"""A second interpreter, for checking the first: it runs MLP functions as they are, makes no rules, and shares no code
with alta beyond the program's data."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from alta import NULL, UNDEFINED, Program
from alta.language.variables import Categorical, Constant, FromPosition, FromToken, Numerical, SetOf


class Trap(Exception):
    pass


class ReadsUndefined(BaseException):  # past an `except Exception` of the function
    pass


class Box(UserDict):
    """The dictionary that an MLP function gets."""

    def __init__(self, program: Program, assignment: dict[str, Any]) -> None:
        super().__init__()
        self.data = dict(assignment)
        self.program = program
        self.written: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value is UNDEFINED:
            raise ReadsUndefined(name)
        domain = self.program.variables[name].domain
        return nearest(value, domain.values) if isinstance(domain, Numerical) else value

    def __setitem__(self, name: str, value: Any) -> None:
        domain = self.program.variables[name].domain
        match domain:
            case Categorical(size):
                if not hasattr(value, "__index__") or not 0 <= value < size:
                    raise Trap(f"{name}={value!r}")
                value = int(value)
            case Numerical(values):
                if not isinstance(value, int | float | Fraction) or float(value) not in values:
                    raise Trap(f"{name}={value!r}")
                value = float(value)
            case SetOf(_, values):
                if not isinstance(value, set | frozenset) or frozenset(value) not in values:
                    raise Trap(f"{name}={value!r}")
                value = frozenset(value)
        super().__setitem__(name, value)
        self.written[name] = value


def nearest(value: Fraction | float, buckets: tuple[float, ...]) -> float:
    """By exhaustive search; the lower of two that are equally near."""
    return min(buckets, key=lambda bucket: (abs(Fraction(bucket) - Fraction(value)), bucket))


def apply(program: Program, assignment: dict[str, Any]) -> dict[str, Any]:
    """What the MLP function writes."""
    box = Box(program, assignment)
    try:
        program.mlp(box)
    except Exception as error:
        raise Trap(repr(error)) from error
    return box.written


@dataclass
class Result:
    states: list[list[dict[str, Any]]] = field(default_factory=list)
    layers: int = 0
    halted: bool = False
    stopped: type[BaseException] | None = None  # Trap or ReadsUndefined


def run(program: Program, inputs: list[Any], max_layers: int) -> Result:
    state = [start(program, token, position) for position, token in enumerate(inputs)]
    result = Result([state])
    while True:
        result.halted = not state or (
            program.halt is not None and all(a[program.halt.variable] == program.halt.value for a in state)
        )
        if result.halted or result.layers == max_layers:
            return result
        attended = attend(program, state)
        try:
            after = [dict(a, **apply(program, a)) for a in attended]
        except (Trap, ReadsUndefined) as error:
            result.stopped = type(error)
            return result
        state = [{name: NULL if name in program.heads else value for name, value in a.items()} for a in after]
        result.states += [attended, state]
        result.layers += 1


def start(program: Program, token: Any, position: int) -> dict[str, Any]:
    found = {}
    for name, variable in program.variables.items():
        match variable.start:
            case FromToken(table):
                found[name] = table[program.tokens.index(token)]
            case FromPosition(table):
                found[name] = table[position]
            case Constant(value):
                found[name] = value
            case _:
                found[name] = NULL
    return found


def attend(program: Program, state: list[dict[str, Any]]) -> list[dict[str, Any]]:
    after = [dict(a) for a in state]
    for name, head in program.heads.items():
        for i in range(len(state)):
            chosen = []
            for j in range(len(state)):
                query, key = state[i][head.query], state[j][head.key]
                matched = key in query if isinstance(query, frozenset) else key == query
                near = head.relative_positions is None or (j - i) in head.relative_positions
                seen = j <= i or not program.causal
                if matched and near and seen:
                    chosen.append(state[j][head.value])
            if isinstance(program.variables[head.value].domain, Numerical):
                mean = sum(Fraction(v) for v in chosen) / Fraction(len(chosen)) if chosen else UNDEFINED
                after[i][name] = mean
            else:
                after[i][name] = chosen[0] if len(chosen) == 1 else UNDEFINED
    return after
