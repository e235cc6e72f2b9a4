"""Thousands of random programs: function against rules, and interpreter against interpreter."""

from __future__ import annotations

import os
import random
from itertools import product

import plain
import pytest
import random_programs

from alta import UNDEFINED, InputError, ProgramError, TrapError, UndefinedError, program_spec, run
from alta.language.variables import Numerical

PROGRAMS = int(os.environ.get("ALTA_RANDOM_PROGRAMS", "5000"))
CHUNK = 250


def what_rules_do(program, assignment):
    """The updates, or Trap, or ReadsUndefined."""
    seen = {
        name: value
        if value is UNDEFINED or not isinstance(program.variables[name].domain, Numerical)
        else plain.nearest(value, program.variables[name].domain.values or (value,))
        for name, value in assignment.items()
    }
    found = program.rules.match(seen)
    if found.traps:
        return plain.Trap
    if found.undefined:
        return plain.ReadsUndefined
    return {rule.output: rule.new for rule in found.rules if not rule.is_reset}


def what_function_does(program, assignment):
    try:
        written = plain.apply(program, assignment)
    except (plain.Trap, plain.ReadsUndefined) as error:
        return type(error)
    return {name: value for name, value in written.items() if value != assignment[name]}


def compare(program, assignment):
    expected = what_function_does(program, assignment)
    if expected is not plain.ReadsUndefined:  # a read that does not matter may be gone from the rules
        assert what_rules_do(program, assignment) == expected, assignment


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_rules_agree_with_functions(first):
    for seed in range(first, first + CHUNK):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        for _ in range(20):
            compare(program, random_programs.assignment(generator, program))
            compare(program, random_programs.assignment(generator, program, undefined=0.5))


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_runs_agree_with_a_second_interpreter(first):
    for seed in range(first, first + CHUNK):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        for _ in range(3):
            inputs = random_programs.inputs(generator, program)
            expected = plain.run(program, inputs, max_layers=5)
            try:
                found = run(program, inputs, max_layers=5)
            except (TrapError, UndefinedError) as error:
                if expected.stopped is plain.Trap:
                    assert error.layer == expected.layers + 1
                else:  # lowering may have removed a read, so that the run goes on, or meets a trap behind it
                    assert expected.stopped is plain.ReadsUndefined
                    assert error.layer > expected.layers
                continue
            states = [[dict(assignment) for assignment in state] for _, state in found.trace.states]
            assert states[: len(expected.states)] == expected.states
            if expected.stopped is None:
                assert (found.layers, found.halted) == (expected.layers, expected.halted)
            else:
                assert expected.stopped is plain.ReadsUndefined


def test_rules_agree_with_functions_on_every_assignment():
    tried = 0
    for seed in range(1_000_000, 1_000_400):
        program = random_programs.program(seed)
        if program.variables.keys() & {"free", "s0"}:
            continue
        domains = {name: variable.domain.values or (0.5,) for name, variable in program.variables.items()}
        size = 1
        for values in domains.values():
            size *= len(values)
        if size > 2000:
            continue
        tried += 1
        for values in product(*domains.values()):
            compare(program, dict(zip(domains, values, strict=True)))
    assert tried > 100


@pytest.mark.parametrize("first", range(0, 1000, CHUNK))
def test_ill_formed_programs_are_refused(first):
    for seed in range(first, first + CHUNK):
        name, arguments = random_programs.ill_formed(seed)
        with pytest.raises(ProgramError):
            program_spec(**arguments)
            pytest.fail(name)


def test_the_generator_makes_all_kinds_of_runs():
    """Without this, a generator that has gone dull would let every other test here pass."""
    seen = {"halted": 0, "ran": 0, plain.Trap: 0, plain.ReadsUndefined: 0, "rules": 0, "traps": 0}
    for seed in range(300):
        program = random_programs.program(seed)
        seen["rules"] += bool(program.rules.core)
        seen["traps"] += bool(program.rules.traps)
        result = plain.run(program, random_programs.inputs(random.Random(seed), program), max_layers=5)
        seen[result.stopped or ("halted" if result.halted else "ran")] += 1
    assert min(seen.values()) > 20, seen


def test_inputs_that_do_not_fit_are_refused():
    for seed in range(300):
        program = random_programs.program(seed)
        for inputs in ([-1], [len(program.tokens)], ["no such token"], [None], [[]]):
            with pytest.raises(InputError):
                run(program, inputs, max_layers=1)
        if program.positions is not None:
            with pytest.raises(InputError):
                run(program, [program.tokens[0]] * (program.positions + 1), max_layers=1)
