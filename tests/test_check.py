"""What `check` and `alta check` find, and the program that `alta new` writes."""

from __future__ import annotations

import random

import pytest
import random_programs

import alta
from alta import halt_spec, numeric_var, program_spec, qkv, run_batch, set_var, v_relative, var
from alta.analysis.check import Severity, check
from alta.analysis.reach import held, matches, needed, possible
from alta.programs import BUNDLED, parity


def said(program, *arguments, **options) -> str:
    return str(check(program, *arguments, **options))


def small(function, **changes):
    """A program of one variable that waits for a 1."""
    arguments = {
        "variables": {"a": var(3, input_init_fn=lambda token: token)},
        "heads": {},
        "ffn_fn": function,
        "output_name": "a",
        "input_range": 2,
        "halt": halt_spec("a", 1),
    }
    return program_spec(**{**arguments, **changes})


def set_to(name, value):
    return lambda z: z.__setitem__(name, value)


def test_a_program_without_a_blemish():
    found = check(small(set_to("a", 1), variables={"a": var(2, input_init_fn=lambda token: token)}))
    assert {finding.severity for finding in found.findings} == {Severity.OK}
    assert "1 variable, 0 heads, 2 tokens; inputs of any length" in str(found)
    assert "1 rule for a, and 0 resets" in str(found)
    assert "halt within 200 layers, without an error" in str(found)
    assert "exact in float32 for inputs of any length" in str(found)
    assert repr(found) == "<check: 0 problems, 0 notes>"


def test_what_is_not_used():
    heads = {"left": v_relative("a", -1), "other": qkv("c", "c", "b")}
    variables = {"a": var(3, input_init_fn=lambda token: token), "b": var(2), "c": var(5, default=2), "d": var(4)}

    def mlp(z):
        z["a"] = 1
        z["b"] = z["left"] > 0
        z["d"] = 2 if z["d"] == 0 else z["d"]

    text = said(small(mlp, heads=heads, variables=variables))
    assert "variable 'b' changes neither output nor halting; leave it out" in text
    assert "head 'other' changes neither output nor halting; leave it out" in text
    assert "'a' never gets above 1; range=2 is enough" in text
    assert "'a' changes" not in text


def test_heads_that_never_read_and_values_that_are_never_held():
    variables = {"a": var(2), "query": var(4, default=3), "key": var(4, input_init_fn=lambda t: t), "idle": var(3)}

    def mlp(z):
        if z["idle"] == 1:
            z["a"] = 0
        elif z["found"] == 1:
            z["a"] = 1

    text = said(small(mlp, variables=variables, heads={"found": qkv("query", "key", "key")}))
    assert "head 'found' never reads: no value of 'key' is one that 'query' asks for" in text
    assert "'idle' is always 0" in text
    assert "can never fire" in text


def test_a_program_that_never_halts_is_a_problem():
    found = check(small(set_to("a", 0), halt=halt_spec("a", 2)))
    (problem,) = found.problems
    assert problem.text == "'a' never becomes 2, so no input of a token or more halts; set it in the MLP"
    assert "had not halted after 200 layers" in str(found)


def test_traps_that_may_be_reached():
    def mlp(z):
        z["a"] = 1 // z["a"] if z["b"] else 3

    text = said(small(mlp, variables={"a": var(3, input_init_fn=lambda token: token), "b": var(2, default=1)}))
    assert "6 traps, of which" not in text
    assert "ZeroDivisionError" in text
    assert "is set out of its domain" not in text


def test_given_inputs_have_to_work():
    program = parity.relative()
    good, bad = [["START", "1"], ["START"]], [["START", "1"], ["1"], ["0", "0"]]
    assert not check(program, good).problems
    (problem,) = check(program, bad).problems
    assert problem.text == "2 of 3 inputs given stop with an error"
    assert problem.details == (
        "'1': layer 1, position 0: the MLP reads 'done_left', which is UNDEFINED: its head reads no position",
    )


def test_errors_on_inputs_that_were_made_up_are_notes():
    found = check(parity.relative())
    assert not found.problems
    assert "inputs that were tried stop with an error" in str(found)


def test_no_halting_condition():
    assert "no halting condition, so every run needs max_layers" in said(small(set_to("a", 1), halt=None))


def test_what_max_length_is_needed():
    text = said(parity.by_sum(20), max_layers=1)
    longest = int(text.split("of up to ")[1].split()[0].replace(",", ""))
    alta.compile(parity.by_sum(20), max_length=longest)
    with pytest.raises(alta.CompileError):
        alta.compile(parity.by_sum(20), max_length=longest + 1)
    assert "up to 30 tokens" in said(parity.by_sum(20), max_layers=1, max_length=30)


def test_means_over_a_few_positions_need_no_max_length():
    variables = {"n": numeric_var((0, 1), input_init_fn=lambda token: token), "a": var(2)}
    program = small(set_to("a", 1), variables=variables, heads={"near": v_relative("n", -1)}, halt=None)
    assert "exact in float32 for inputs of any length" in said(program)


def test_a_program_without_a_transformer():
    values = (0.0, 1e-9, 1.0)
    variables = {"n": numeric_var(values, input_init_fn=values.__getitem__), "a": var(3)}
    found = check(
        small(lambda z: z.__setitem__("a", values.index(z["n"])), variables=variables, input_range=3, halt=None)
    )
    (problem,) = found.problems
    assert problem.text.startswith("no Transformer in float32: the buckets 0 and 1e-09 of 'n' are too close")
    assert "in float64 there is one" in problem.text


@pytest.mark.parametrize("name", sorted(BUNDLED))
def test_the_bundled_programs_have_no_problem(name):
    bundled = BUNDLED[name]
    assert not check(bundled.build(), max_layers=bundled.max_layers).problems


def test_reach_holds_what_runs_show():
    """The sets are larger than the truth, never smaller: no run meets a value that is not in them, and no rule fires
    that is not possible; a variable that is not needed can be left as it is."""
    generator = random.Random(7)
    fired = 0
    for seed in range(60):
        program = random_programs.program(seed)
        values = held(program)
        batch = [random_programs.inputs(generator, program) for _ in range(40)]
        for run in run_batch(program, batch, 4, fired=True, trace=True, progress=False, engine="numpy"):
            if run.error is not None:
                continue
            for rule in run.fired:
                fired += 1
                assert rule.is_reset or possible(rule, values)
            for _, state in run.trace.states:
                for assignment in state:
                    for name in program.variables.keys() - program.heads.keys():
                        assert assignment[name] in values[name]
    assert fired > 500


def test_needed_follows_rules_and_heads():
    variables = {"a": var(2), "b": var(2), "c": var(2), "d": var(2), "set": set_var(2, [{0}], default={0})}

    def mlp(z):
        z["a"] = z["left"]
        z["d"] = z["a"]

    program = small(mlp, variables=variables, heads={"left": qkv("set", "b", "c")})
    assert needed(program) == {"a", "left", "set", "b", "c"}
    assert matches(program.heads["left"], held(program))
