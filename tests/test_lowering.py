"""From functions to rules: what functions may do, how few rules come out, and what is refused."""

from __future__ import annotations

import functools
import math
import threading
from itertools import product
from typing import Any

import numpy as np
import plain
import pytest
from test_random_programs import compare

from alta import LoweringError, halt_spec, numeric_var, program_spec, qkv, set_var, v_relative, var
from alta.language.variables import Numerical

TABLE = {0: "zero", 1: "one", 2: "two", 3: "three"}
NAMES = {name: number for number, name in TABLE.items()}


def program(function: Any, **changes: Any) -> Any:
    variables = {
        "a": var(4),
        "b": var(4),
        "c": var(2),
        "n": numeric_var((0, 0.5, 2)),
        "s": set_var(4, [{0}, {1, 2}, {0, 1, 2, 3}], default={0}),
    }
    heads = {"left": v_relative("a", -1), "mean": qkv("c", "c", "n")}
    arguments = {"variables": variables, "heads": heads, "ffn_fn": function, "output_name": "a", "input_range": 2}
    return program_spec(**{**arguments, **changes})


def check_everywhere(lowered: Any) -> None:
    """Function and rules agree on every assignment."""
    domains = {
        name: [0.1, 0.25, 0.26, 1.7] if v.is_output and isinstance(v.domain, Numerical) else v.domain.values
        for name, v in lowered.variables.items()
    }
    for values in product(*domains.values()):
        compare(lowered, dict(zip(domains, values, strict=True)))


def chained(z):
    if 0 < z["a"] <= z["b"] < 3:
        z["c"] = 1


def elif_and_or_not(z):
    if z["a"] == 1 and not z["c"]:
        z["b"] = 0
    elif z["a"] == 2 or z["b"] > 2:
        z["b"] = 1
    else:
        z["c"] = z["a"] in (0, 3)


def arithmetic(z):
    z["a"] = (
        z["a"] * 3 - z["b"] // 2 + 7 % (z["c"] + 1) + (z["a"] ^ z["b"]) + (z["a"] & 1) + (z["b"] << 1 >> 1) | 1
    ) % 4


def builtin_functions(z):
    z["a"] = min(z["a"], max(z["b"], 1))
    z["b"] = abs(-z["b"]) and round(z["n"] + 0.1) + int(bool(z["c"]))
    quotient, remainder = divmod(z["a"] + 5, 4)
    z["c"] = (quotient + remainder) % 2


def tables(z):
    z["a"] = NAMES[TABLE[z["a"]]] if z["c"] else [3, 2, 1, 0][z["b"]]
    z["b"] = {(0, 0): 1, (0, 1): 2}.get((z["a"], z["c"]), 3)


def membership(z):
    if z["a"] in {1, 3} and z["b"] in z["s"] and 2 not in z["s"]:
        z["c"] = len(z["s"]) % 2


def strings(z):
    print("state", z["a"], f"{z['b']!r:>5}")
    label = f"{z['a']}-{z['c']}"
    if z["b"] == 1:
        z["b"] = 2 if label == "3-1" else 0


def helpers(z):
    def successor(value):
        return 0 if value == 3 else value + 1

    z["a"] = successor(successor(z["b"]))


@functools.lru_cache
def cached(value, other):
    return (value + other) % 4


def with_a_cache(z):
    z["a"] = cached(z["b"], z["c"])


def early_return(z):
    if z["c"]:
        return
    z["a"] = 1
    if z["b"] == 2:
        return
    z["c"] = 1


def loops(z):
    total = 0
    for value in range(4):
        if value < z["a"]:
            total += value
    z["b"] = total % 4
    for name in ("a", "c"):
        z[name] = 0


def while_loop(z):
    while z["a"] < z["b"]:
        z["a"] += 1
        if z["a"] == 2:
            break


def swaps(z):
    z["a"], z["b"] = z["b"], z["a"]
    z["c"] ^= 1


def catches(z):
    try:
        z["a"] = 4 // z["b"] - 1
    except ZeroDivisionError:
        z["a"] = 0
    try:
        z["b"] = [1, 2][z["a"]]
    except IndexError as error:
        z["b"] = len(str(error)) % 4


def out_of_range(z):
    if z["c"]:
        z["a"] += z["b"]
    z["n"] = z["n"] * 4


def raises(z):
    if z["a"] > z["b"]:
        raise ValueError(f"{z['a']} is more than {z['b']}")
    z["c"] = 1


def asserts(z):
    assert z["a"] != 2, "not two"
    z["b"] = z["a"]


def numbers(z):
    z["n"] = 0.5 if z["mean"] > 0.4 else 2 * z["c"]
    z["a"] = math.floor(z["n"] * 1.5) + math.ceil(z["n"] / 4) - int(z["n"] == 2)


def sets(z):
    z["s"] = {0} if z["s"] == {1, 2} else z["s"] | {1, 2, 3} | {0}


def types(z):
    if isinstance(z["a"], int) and not isinstance(z["n"], int):
        z["a"] = z["a"].bit_length() % 2


def tuples(z):
    if (z["a"], z["b"]) in ((1, 2), (3, 0)):
        z["c"] = 1


def numpy_scalars(z):
    z["a"] = np.array([3, 1, 2, 0])[z["b"]]
    z["b"] = np.int64(1) + z["c"]


def shared_lists(z):
    items = [0] * z["a"]
    items.append(1)
    z["b"] = len(items) % 4


def comprehension(z):
    z["b"] = sum(1 for value in (z["a"], z["c"], 1) if value == 1)


def names(z):
    assert "a" in z
    assert "nobody" not in z
    for name in z:
        if name in ("a", "b") and name in z.keys():  # noqa: SIM118
            z[name] = 1


def nothing(z):
    pass


@pytest.mark.parametrize(
    "function",
    [
        chained, elif_and_or_not, arithmetic, builtin_functions, tables, membership, strings, helpers, with_a_cache,
        early_return, loops, while_loop, swaps, catches, out_of_range, raises, asserts, numbers, sets, types, tuples,
        numpy_scalars, shared_lists, comprehension, names, nothing,
    ],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_rules_do_what_the_function_does(function):
    check_everywhere(program(function))


def test_what_the_function_prints_while_lowering_is_not_shown(capsys):
    assert program(strings).rules.core
    assert capsys.readouterr().out == ""


def test_other_threads_may_print_while_a_program_is_lowered(capsys):
    inside, printed = threading.Event(), threading.Event()

    def function(z):
        inside.set()
        printed.wait(10)
        z["a"] = 1

    def printer():
        inside.wait(10)
        print("from another thread")
        printed.set()

    thread = threading.Thread(target=printer)
    thread.start()
    assert program(function).rules.core
    thread.join()
    print("afterwards")
    assert capsys.readouterr().out == "from another thread\nafterwards\n"


def test_traps_are_kept_with_their_reasons():
    rules = program(raises).rules
    assert len(rules.traps) == 6
    assert {trap.reason.split(" (")[0] for trap in rules.traps} >= {"ValueError: 1 is more than 0"}
    assert all("test_lowering.py" in trap.reason for trap in rules.traps)
    assert {trap.reason.split(" (")[0] for trap in program(out_of_range).rules.traps} >= {
        "'a' is set out of its domain: 6 is outside 0..3",
        "'n' is set out of its domain: 8.0 is not among the buckets 0, 0.5, 2",
    }


def test_a_trap_does_not_split_the_rules_of_other_variables():
    def function(z):
        z["c"] = 1
        z["a"] += 1

    rules = program(function).rules
    assert [str(rule) for rule in rules.core if rule.output == "c"] == ["c=0 ⟹ c := 1"]
    assert [str(trap.antecedent[0]) for trap in rules.traps] == ["a=3"]


def test_a_read_is_never_added():
    """b is read only where a is 0, so where a is 1, an UNDEFINED b must not matter."""

    def function(z):
        z["c"] = 1 if z["a"] or z["left"] else 0

    found = program(function).rules.match({"a": 1, "b": 0, "c": 0, "left": plain.UNDEFINED, "mean": 0.0})
    assert [rule.new for rule in found.rules if rule.output == "c"] == [1]
    assert not found.undefined


def test_lookups_by_many_variables_need_no_enumeration():
    """2 ** 40 assignments, few paths."""

    def function(z):
        if all(z[f"x{i}"] for i in range(40)):
            z["out"] = 1

    variables = {**{f"x{i}": var(2) for i in range(40)}, "out": var(2)}
    rules = program(function, variables=variables, heads={}, output_name="out").rules
    assert len(rules) == 1
    assert len(rules.core[0].antecedent) == 41


def test_wide_tables_split_a_variable():
    """The sum of four variables with 30 values has more joint values than one table may hold."""

    def function(z):
        if z["p"] + z["q"] + z["r"] + z["s"] == 116:
            z["out"] = 1

    variables = {**{name: var(30) for name in "pqrs"}, "out": var(2)}
    rules = program(function, variables=variables, heads={}, output_name="out").rules
    assert len(rules) == 1


def test_only_the_deciding_variables_are_constrained():
    def function(z):
        z["a"] = 3 if z["b"] in (1, 2) or z["b"] in (0, 3) else z["c"]

    assert [str(rule) for rule in program(function).rules.core] == [f"a={old} ⟹ a := 3" for old in range(3)]


def test_random_numbers_are_refused():
    import random

    with pytest.raises(LoweringError, match="not deterministic"):
        assert program(lambda z: z.__setitem__("a", random.randrange(4))).rules


def test_state_that_grows_is_refused():
    seen: list[int] = []

    def function(z):
        seen.append(1)
        if len(seen) % 2:
            z["a"] = z["b"]

    with pytest.raises(LoweringError, match="not deterministic"):
        assert program(function).rules


def test_a_loop_without_end_hits_the_limit():
    def function(z):
        while z["a"] != z["b"] + 4:
            z["c"] = 0
            if (z["a"], z["b"]) == (0, 0):
                for _ in range(3):
                    z["c"] ^= z["a"] == z["b"]
            break

    assert program(function, max_paths=50).rules is not None
    with pytest.raises(LoweringError, match=r"'a' split over 4 values"):
        assert program(lambda z: {0: 1, 1: 1, 2: 1, 3: 1}[z["a"]], max_paths=2).rules


def test_the_limit_says_where_and_can_be_raised():
    table = {(i, j): (i + j) % 4 for i in range(40) for j in range(40)}

    def function(z):
        z["a"] = table[z["x"], z["y"]]

    changes = {"variables": {"a": var(4), "x": var(40), "y": var(40)}, "heads": {}}
    with pytest.raises(LoweringError, match=r"line \d+ of test_lowering.py: '[xy]' split over 40 values"):
        assert program(function, max_paths=500, **changes).rules
    assert len(program(function, max_paths=2000, **changes).rules) == 4800


def addition_as_in_the_paper():
    """Written anew, after the paper's description: one step to place the pointers, one for each digit, one to end."""
    start, plus, end = 10, 11, 12
    begin, work, close, done = range(4)

    def mlp(z):
        if z["step"] == begin:
            if z["token"] != end:
                if z["token_right"] == end:
                    z["at_b"] = z["at_out"] = 1
                if z["token_right"] == plus:
                    z["at_a"] = 1
            z["step"] = work
        elif z["step"] == work:
            if z["a"] == start:
                z["step"] = close
                return
            total = z["carry"] + z["a"] + z["b"]
            if z["at_out"]:
                z["out"] = total % 10
            z["carry"] = total // 10
            if z["token"] != end:
                for pointer in ("at_out", "at_a", "at_b"):
                    z[pointer] = z[f"{pointer}_right"]
        elif z["step"] == close:
            if z["at_out"]:
                z["out"] = z["carry"]
            z["step"] = done

    return program_spec(
        variables={
            "token": var(13, input_init_fn=lambda token: token),
            "step": var(4),
            **{f"at_{name}": var(2) for name in ("a", "b", "out")},
            "carry": var(10),
            "out": var(10),
            "one": var(2, default=1),
        },
        heads={
            "token_right": v_relative("token", 1),
            **{f"at_{name}_right": v_relative(f"at_{name}", 1) for name in ("a", "b", "out")},
            "a": qkv("one", "at_a", "token"),
            "b": qkv("one", "at_b", "token"),
        },
        ffn_fn=mlp,
        output_name="out",
        input_range=13,
        halt=halt_spec("step", done),
    )


def test_the_papers_addition_is_as_small_as_by_hand():
    rules = addition_as_in_the_paper().rules
    assert len(rules.core) <= 16_421
    assert len(rules.resets) == 45


def test_random_assignments_of_the_papers_addition():
    import random

    import random_programs

    program = addition_as_in_the_paper()
    generator = random.Random(0)
    for _ in range(5000):
        compare(program, random_programs.assignment(generator, program, undefined=0.1))


def differences(lowered: Any, assignments: Any) -> list[Any]:
    from test_random_programs import what_function_does, what_rules_do

    return [a for a in assignments if what_function_does(lowered, a) != what_rules_do(lowered, a)]


def refused_or_right(function: Any, **changes: Any) -> None:
    """A function that looks at symbols in ways that they cannot follow is refused, if it is not lowered rightly."""
    lowered = program(function, **changes)
    domains = {name: variable.domain.values for name, variable in lowered.variables.items()}
    try:
        assert lowered.rules is not None
    except LoweringError:
        return
    every = (dict(zip(domains, values, strict=True)) for values in product(*domains.values()))
    assert differences(lowered, every) == []


WIDE = {"variables": {"a": var(2), "x": var(1000)}, "heads": {}}


def test_a_truth_value_that_is_looked_at_by_identity_is_noticed():
    def by_is(z):
        if (z["x"] == 777) is True:
            z["a"] = 1

    def by_match(z):
        match (z["x"] == 777, z["x"] > 3):
            case (True, _):
                z["a"] = 1

    refused_or_right(by_is, **WIDE)
    refused_or_right(by_match, **WIDE)


def test_an_except_in_the_function_does_not_swallow_a_refusal():
    table = {(i, j): 1 for i in range(300) for j in range(300)}

    def function(z):
        try:
            z["a"] = table[z["x"], z["y"]]
        except Exception:
            z["a"] = 0

    changes = {"variables": {"a": var(2), "x": var(300), "y": var(300)}, "heads": {}}
    with pytest.raises(LoweringError, match="more than 50,000 paths"):
        assert program(function, **changes).rules

    def misspelt(z):
        try:
            z["a"] = z["nobody"]
        except Exception:
            z["a"] = 0

    with pytest.raises(LoweringError, match="'nobody'"):
        assert program(misspelt).rules


def test_an_operand_that_changes_between_two_operations():
    class Limit:
        value = 0

        def __gt__(self, other):
            return self.value > other

    def function(z):
        limit = Limit()
        if limit > z["a"]:
            z["b"] = 1
        limit.value = 3
        if limit > z["a"]:
            z["b"] = 2

    refused_or_right(function)


def test_the_type_of_a_power_may_depend_on_the_exponent():
    def function(z):
        if isinstance(2 ** (z["a"] - 2), float):
            z["b"] = 1

    refused_or_right(function)


def test_paths_that_contradict_themselves_are_left():
    def ordered_pair(z):
        if z["a"] < z["b"]:
            z["c"] = len({z["a"], z["b"]}) - 1

    def cycle(z):
        while z["c"] != z["d"] and z["d"] != z["e"] and z["c"] != z["e"]:
            pass
        z["a"] = 1

    check_everywhere(program(ordered_pair))
    bits = {name: var(2) for name in "acde"}
    assert len(program(cycle, variables=bits, heads={}).rules) == 1


def test_three_argument_powers_copies_and_repeated_strings():
    import copy

    def function(z):
        z["a"] = pow(z["a"], 2, 3) + len(("x" * z["b"])[1:]) % 2
        z["b"] = copy.deepcopy(z["c"])

    check_everywhere(program(function))


def test_the_workspace_is_a_dictionary():
    def function(z):
        z["b"] = z.get("a", 0)
        z.update({"c": 1})
        z["a"] = sum(1 for _, value in z.items() if value == 1) % 4

    lowered = program(function, variables={name: var(4) for name in "abc"}, heads={})
    check_everywhere(lowered)
    with pytest.raises(LoweringError, match="deletes 'a'"):
        assert program(lambda z: z.pop("a")).rules


def test_text_is_no_number_and_a_list_no_set():
    assert len(program(lambda z: z.__setitem__("n", "0.5")).rules.traps) == 1
    assert len(program(lambda z: z.__setitem__("s", [0])).rules.traps) == 1


def test_too_many_variables_in_one_sum_are_refused():
    bits = {**{f"x{i}": var(2) for i in range(40)}, "a": var(2)}
    with pytest.raises(LoweringError, match="more than 16,777,216 joint values|more than 50,000 paths"):
        assert program(
            lambda z: z.__setitem__("a", sum(z[f"x{i}"] for i in range(40)) > 20), variables=bits, heads={}
        ).rules


def test_many_variables_and_rules():
    """Neither recursion nor a quadratic search for conflicts stands in the way."""
    from alta import Constraint, Rule, RuleSet, run

    many = {**{f"x{i}": var(2) for i in range(1200)}, "a": var(2)}

    def each(z):
        for i in range(0, 1200, 100):
            z[f"x{i}"] = 1

    assert len(run(program(each, variables=many, heads={}), [0], max_layers=1).outputs) == 1
    rules = [
        Rule("a", 0, 1, (Constraint("a", 0), Constraint("k", i), Constraint(f"x{i % 1000}", 1))) for i in range(20_000)
    ]
    assert len(RuleSet(tuple(rules))) == 20_000
