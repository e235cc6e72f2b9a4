"""Random programs, well-formed and ill-formed. `recipe(seed)` gives the arguments of `program_spec`."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import alta
from alta import UNDEFINED, Program
from alta.language.variables import Categorical, Numerical, SetOf

Expression = Callable[[Any], Any]
Statement = Callable[[Any], bool]  # True where the function returns early

GRIDS = ((0.0, 1.0), (-1.0, 0.0, 2.5), (0.0, 0.25, 0.5, 1.0), (1 / 3, 2 / 3), (5.0,), (0.1, 0.2, 0.30000000000000004))


def program(seed: int) -> Program:
    """A well-formed program. Its runs may trap, read UNDEFINED, or never halt."""
    return alta.program_spec(**recipe(seed))


def recipe(seed: int) -> dict[str, Any]:
    return _Maker(random.Random(seed)).recipe()


def ill_formed(seed: int) -> tuple[str, dict[str, Any]]:
    """What is wrong, and the arguments of a program that has to be refused."""
    generator = random.Random(seed)
    while True:
        arguments = recipe(generator.randrange(10**9))
        name, damage = generator.choice(sorted(DAMAGES.items()))
        if damage(arguments):
            return name, arguments


def inputs(generator: random.Random, of: Program, longest: int = 7) -> list[Any]:
    """A random input that fits."""
    longest = longest if of.positions is None else min(longest, of.positions)
    return [generator.choice(of.tokens) for _ in range(generator.randint(0, longest))]


def assignment(generator: random.Random, of: Program, undefined: float = 0.0) -> dict[str, Any]:
    """A random state of one position as the MLP finds it: outputs of heads hold means, or are UNDEFINED."""
    found: dict[str, Any] = {}
    for name, variable in of.variables.items():
        domain = variable.domain
        if variable.is_output and generator.random() < undefined:
            found[name] = UNDEFINED
        elif variable.is_output and isinstance(domain, Numerical):
            values = of.variables[of.heads[name].value].domain.values or (0.0, 1.0)
            chosen = [Fraction(generator.choice(values)) for _ in range(generator.randint(1, 6))]
            found[name] = sum(chosen) / len(chosen)
        else:
            found[name] = generator.choice(domain.values or (0.5,))
    return found


class _Maker:
    def __init__(self, generator: random.Random) -> None:
        self.random = generator
        self.variables: dict[str, Any] = {}
        self.heads: dict[str, Any] = {}
        self.positions: int | None = None

    def recipe(self) -> dict[str, Any]:
        choose = self.random
        tokens = choose.choice((1, 2, 3, 4))
        self.positions = choose.choice((None, 6, 9))
        sizes = [choose.choice((1, 2, 2, 3, 4)) for _ in range(choose.randint(1, 4))]
        for index, size in enumerate(sizes):
            self.variables[f"c{index}"] = alta.var(size, **self.start(lambda size=size: choose.randrange(size), tokens))
        for index in range(choose.choice((0, 0, 1, 2))):
            grid = choose.choice(GRIDS)
            start = self.start(lambda grid=grid: choose.choice(grid), tokens, always=True)
            self.variables[f"n{index}"] = alta.numeric_var(grid, **start)
        if choose.random() < 0.3:
            start = self.start(lambda: choose.uniform(-1, 1), tokens, always=True)
            self.variables["free"] = alta.numeric_var(**start)
        if choose.random() < 0.4:
            size = choose.choice(sizes)
            sets = [frozenset(v for v in range(size) if mask >> v & 1) for mask in range(2**size)]
            sets = choose.sample(sets, choose.randint(1, min(4, len(sets))))
            start = self.start(lambda: choose.choice(sets), tokens, always=True)
            self.variables["s0"] = alta.set_var(size, sets, **start)
        causal = choose.random() < 0.25
        for index in range(choose.randint(0, 3)):
            self.heads[f"h{index}"] = self.head(causal)
        block = self.block(choose.randint(1, 3))

        def mlp(z: Any) -> None:
            block(z)

        outputs = [name for name in self.variables if name != "s0"]
        halting = choose.choice([name for name in self.variables if name.startswith("c")])
        value = choose.randrange(self.variables[halting].domain.size)
        strings = choose.random() < 0.3
        return {
            "variables": self.variables,
            "heads": self.heads,
            "ffn_fn": mlp,
            "output_name": choose.choice(outputs),
            "input_range": None if strings else tokens,
            "tokens": tuple("abcd"[:tokens]) if strings else None,
            "position_range": self.positions,
            "halt": alta.halt_spec(halting, value) if choose.random() < 0.6 else None,
            "causal": causal,
        }

    def start(self, value: Callable[[], Any], tokens: int, always: bool = False) -> dict[str, Any]:
        """From the token, the position, or a constant (which may be left out unless `always`)."""
        match self.random.choice(("token", "position", "constant", "nothing")):
            case "token":
                table = {token: value() for token in (*range(tokens), *"abcd")}
                return {"input_init_fn": table.__getitem__}
            case "position" if self.positions is not None:
                return {"position_init_fn": [value() for _ in range(self.positions)].__getitem__}
            case "nothing" if not always:
                return {}
            case _:
                return {"default": value()}

    def head(self, causal: bool) -> Any:
        choose = self.random
        values = [name for name in self.variables if name != "s0"]
        value = choose.choice(values)
        domain = self.variables[value].domain
        given = {}
        if choose.random() < 0.3:
            bigger = alta.var(domain.size + 1) if isinstance(domain, Categorical) else alta.numeric_var((0, 0.5, 1))
            given = {"output_spec": bigger}
        if choose.random() < 0.4:
            return alta.v_relative(value, choose.choice((-2, -1, 0) if causal else (-2, -1, 0, 1)), **given)
        domains = {name: v.domain for name, v in self.variables.items()}
        key = choose.choice([name for name, d in domains.items() if isinstance(d, Categorical)])
        queries = [n for n, d in domains.items() if not isinstance(d, Numerical) and d.size == domains[key].size]
        near = choose.choice((None, None, (-1, 1), (0, -1), (-3, -2, -1)))
        return alta.qkv(choose.choice(queries), key, value, relative_positions=near, **given)

    def block(self, depth: int) -> Statement:
        statements = [self.statement(depth) for _ in range(self.random.randint(1, 3))]
        return lambda z: any(statement(z) for statement in statements)

    def statement(self, depth: int) -> Statement:
        choose = self.random
        kinds = ["set", "set", "set", "copy", "add", "return"] + (
            ["if", "if", "if", "loop", "while", "try"] if depth else []
        )
        target = choose.choice(list(self.variables))
        if target == "free":
            target = "c0"
        domain = self.variables[target].domain
        match choose.choice(kinds):
            case "set":
                return self.assign(target, domain)
            case "copy":
                source = choose.choice(self.readable())
                return lambda z: z.__setitem__(target, z[source]) is not None
            case "add":
                step = choose.choice((1, -1, 2))
                return lambda z: z.__setitem__(target, z[target] + step) is not None
            case "return":
                test = self.expression(1)
                return lambda z: bool(test(z))
            case "if":
                test, then, other = self.expression(2), self.block(depth - 1), self.block(depth - 1)
                if choose.random() < 0.3:
                    return lambda z: then(z) if test(z) else False
                return lambda z: then(z) if test(z) else other(z)
            case "loop":
                body, count = self.block(depth - 1), choose.randint(1, 3)
                return lambda z: any(body(z) for _ in range(count))
            case "while":
                return self.while_loop(target if isinstance(domain, Categorical) else "c0")
            case _:
                body, other = self.block(depth - 1), self.block(0)
                return lambda z: _guarded(body, other, z)

    def assign(self, target: str, domain: Any) -> Statement:
        value = self.expression(2)
        match domain:
            case Categorical(size) if self.random.random() < 0.8:
                return lambda z: z.__setitem__(target, int(value(z)) % size) is not None
            case Numerical(values) if self.random.random() < 0.8:
                return lambda z: z.__setitem__(target, values[int(value(z)) % len(values)]) is not None
            case SetOf(_, values) if self.random.random() < 0.8:
                return lambda z: z.__setitem__(target, values[int(value(z)) % len(values)]) is not None
            case _:
                return lambda z: z.__setitem__(target, value(z)) is not None

    def while_loop(self, target: str) -> Statement:
        limit = self.variables[target].domain.size - self.random.choice((0, 1))

        def loop(z: Any) -> bool:
            while z[target] < limit:
                z[target] += 1
            return False

        return loop

    def readable(self) -> list[str]:
        free = {"free"} | {name for name, head in self.heads.items() if head.value == "free" and head.output is None}
        return [name for name in (*self.variables, *self.heads) if name not in free]

    def expression(self, depth: int) -> Expression:
        choose = self.random
        if depth == 0 or choose.random() < 0.2:
            if choose.random() < 0.25:
                constant = choose.choice((-1, 0, 1, 2, 3, 0.5, True))
                return lambda z: constant
            name = choose.choice([name for name in self.readable() if name != "s0"] or ["c0"])
            return lambda z: z[name]
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        k = choose.randint(0, 3)
        if "s0" in self.variables and choose.random() < 0.15:
            return choose.choice((lambda z: a(z) in z["s0"], lambda z: len(z["s0"]), lambda z: k in z["s0"]))
        return choose.choice(
            (
                self.binary(a, b),
                self.binary(a, b),
                self.comparison(a, b),
                lambda z: not a(z),
                lambda z: a(z) and b(z),
                lambda z: a(z) or b(z),
                lambda z: 0 <= a(z) < k,
                lambda z: a(z) in (0, k),
                lambda z: a(z) in {1, k, 0.5},
                lambda z: {0: 2, 1: 0, k: 1}[a(z)],
                lambda z: {0: 2, 1: 0}.get(a(z), k),
                lambda z: [3, 1, 0, 2][a(z)],
                lambda z: (k, 1)[bool(a(z))],
                lambda z: b(z) if a(z) else k,
                lambda z: abs(a(z) - k),
                lambda z: min(a(z), b(z)),
                lambda z: max(a(z), k, b(z)),
                lambda z: round(a(z)),
                lambda z: int(a(z)) + k,
                lambda z: float(a(z)),
                lambda z: divmod(a(z), k)[0],
                lambda z: divmod(k, a(z))[1],
                lambda z: -a(z),
                lambda z: ~int(a(z)) & 3,
                lambda z: 1 / a(z),
                lambda z: len(f"{a(z)}"),
                lambda z: str(a(z)) == str(k),
                lambda z: _helper(a(z), k),
                lambda z: isinstance(a(z), int),
                lambda z: int(a(z)).bit_length(),
                lambda z: (a(z), b(z)) == (k, 1),
            )
        )

    def binary(self, a: Expression, b: Expression) -> Expression:
        names = ("add", "sub", "mul", "floordiv", "mod", "truediv", "xor", "and_", "or_", "rshift", "lshift", "pow")
        weights = (4, 4, 3, 2, 3, 1, 2, 1, 1, 1, 1, 1)
        operation = getattr(operator, self.random.choices(names, weights)[0])
        return lambda z: operation(a(z), b(z))

    def comparison(self, a: Expression, b: Expression) -> Expression:
        operation = getattr(operator, self.random.choice(("eq", "ne", "lt", "le", "gt", "ge")))
        return lambda z: operation(a(z), b(z))


def _guarded(body: Statement, other: Statement, z: Any) -> bool:
    try:
        return body(z)
    except (ArithmeticError, LookupError, TypeError):
        return other(z)


def _helper(value: Any, limit: int) -> Any:
    total = 0
    for step in range(limit):
        if value == step:
            return total
        total += step
    return value


def _first(arguments: dict[str, Any], kind: type) -> str | None:
    return next((name for name, v in arguments["variables"].items() if isinstance(v.domain, kind)), None)


def _wrong_head(**changes: Any) -> Callable[[dict[str, Any]], bool]:
    def damage(arguments: dict[str, Any]) -> bool:
        parts = {"query": "c0", "key": "c0", "value": "c0", **changes}
        arguments["heads"] = {**arguments["heads"], "wrong": alta.qkv(**parts)}
        return True

    return damage


def _wrong(**changes: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda arguments: arguments.update(changes) is None


def _head_on_head(arguments: dict[str, Any]) -> bool:
    arguments["heads"] = {"first": alta.v_relative("c0", -1), "second": alta.v_relative("first", -1)}
    return True


def _set_value(arguments: dict[str, Any]) -> bool:
    name = _first(arguments, SetOf)
    return name is not None and _wrong_head(value=name)(arguments)


def _numerical_key(arguments: dict[str, Any]) -> bool:
    name = _first(arguments, Numerical)
    return name is not None and _wrong_head(key=name)(arguments)


def _output_is_head(arguments: dict[str, Any]) -> bool:
    arguments["output_name"] = next(iter(arguments["heads"]), None)
    return arguments["output_name"] is not None


def _start_out_of_range(arguments: dict[str, Any]) -> bool:
    wrong = alta.var(2, input_init_fn=lambda token: 2)
    arguments["variables"] = {**arguments["variables"], "wrong": wrong}
    return True


def _position_without_range(arguments: dict[str, Any]) -> bool:
    arguments["variables"] = {**arguments["variables"], "wrong": alta.var(99, position_init_fn=lambda i: i)}
    arguments["position_range"] = None
    return True


def _halt_out_of_range(arguments: dict[str, Any]) -> bool:
    arguments["halt"] = alta.halt_spec("c0", arguments["variables"]["c0"].domain.size)
    return True


def _right_only(arguments: dict[str, Any]) -> bool:
    arguments["causal"] = True
    return _wrong_head(relative_positions=(1, 2))(arguments)


def _larger_query(arguments: dict[str, Any]) -> bool:
    arguments["variables"] = {**arguments["variables"], "large": alta.var(9)}
    return _wrong_head(query="large")(arguments)


DAMAGES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "unknown query": _wrong_head(query="nobody"),
    "unknown key": _wrong_head(key="nobody"),
    "unknown value": _wrong_head(value="nobody"),
    "no relative position": _wrong_head(relative_positions=()),
    "relative position twice": _wrong_head(relative_positions=(1, 1)),
    "unknown output": _wrong(output_name="nobody"),
    "no tokens": _wrong(input_range=None, tokens=()),
    "both kinds of tokens": _wrong(input_range=2, tokens=("a", "b")),
    "unknown halt": _wrong(halt=alta.halt_spec("nobody", 0)),
    "no MLP": _wrong(ffn_fn=None),
    "head reads a head": _head_on_head,
    "set as a value": _set_value,
    "numerical key": _numerical_key,
    "output of a head as output": _output_is_head,
    "start out of range": _start_out_of_range,
    "position without range": _position_without_range,
    "halt out of range": _halt_out_of_range,
    "looks right only": _right_only,
    "ranges differ": _larger_query,
}
