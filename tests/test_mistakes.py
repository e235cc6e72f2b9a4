"""What people get wrong, and the messages that they get. One row a mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from alta import (
    AltaError,
    Constraint,
    MLPBuilder,
    Model,
    Rule,
    RuleSet,
    compile,
    generate,
    halt_spec,
    load,
    numeric_var,
    program_spec,
    qkv,
    run,
    set_var,
    v_relative,
    var,
)
from alta.programs import parity


def mlp(z: Any) -> None:
    z["a"] = z["b"]


def build(*, add: dict[str, Any] | None = None, heads: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A small program with changes."""
    arguments: dict[str, Any] = {
        "variables": {
            "a": var(3),
            "b": var(3, input_init_fn=lambda token: token),
            "n": numeric_var((0, 1)),
            **(add or {}),
        },
        "heads": {"left": v_relative("a", -1), **(heads or {})},
        "ffn_fn": mlp,
        "output_name": "a",
        "input_range": 3,
        "halt": halt_spec("a", 0),
    }
    return program_spec(**{**arguments, **changes})


def lower(function: Any, **changes: Any) -> Any:
    return build(ffn_fn=function, **changes).rules


def execute(function: Any, inputs: Any = (1, 2), **changes: Any) -> Any:
    return run(build(ffn_fn=function, **changes), inputs, max_layers=2)


def set_to(name: str, value: Any) -> Any:
    return lambda z: z.__setitem__(name, value)


def builder() -> MLPBuilder:
    return MLPBuilder({"a": var(3), "b": var(3), "free": numeric_var()}, {"left": v_relative("a", -1)})


def rule(output: str, old: Any, new: Any, **antecedent: Any) -> Rule:
    return Rule(output, old, new, tuple(Constraint(name, value) for name, value in antecedent.items()))


def not_deterministic() -> Any:
    calls: list[int] = []

    def function(z: Any) -> None:
        calls.append(1)
        z["a"] = len(calls) % 3

    return lower(function)


def keeps_values() -> Any:
    kept: list[Any] = []

    def function(z: Any) -> None:
        kept.append(z["a"] + z["b"])
        z["a"] = 1 if kept[0] == 2 else 0

    return lower(function)


def depends_on_the_type() -> Any:
    return lower(lambda z: z.__setitem__("a", 1 if type(z["b"]) is int else 2))


def too_many_paths() -> Any:
    table = {(i, j): i + j for i in range(50) for j in range(50)}
    wide = {"x": var(50), "y": var(50), "a": var(100)}
    return lower(lambda z: z.__setitem__("a", table[z["x"], z["y"]]), add=wide, max_paths=100)


def suspended_generator() -> Any:
    x = builder()

    def helper() -> Any:
        yield from x.get("a")

    values = helper()
    next(values)
    x.set("b", 1)


def model() -> Model:
    return compile(parity.relative())


def other_version() -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file({"x": np.zeros(1)}, path, {"alta": json.dumps({"format": "alta-model", "version": 99})})
        return load(path)


def large_steps() -> Any:
    """Buckets so close that the steps between them become large."""
    values = (0.0, 1e-6, 1.0)
    variables = {"n": numeric_var(values, input_init_fn=values.__getitem__), "a": var(3)}
    changes = {"add": variables, "ffn_fn": lambda z: z.__setitem__("a", values.index(z["n"]))}
    return build(**changes)


MISTAKES: list[tuple[str, Any, str]] = [
    # domains
    ("empty range", lambda: var(0), "whole number of values, 1 or more; got 0"),
    ("negative range", lambda: var(-2), "1 or more; got -2"),
    ("range is a float", lambda: var(2.0), "got 2.0"),
    ("range is a bool", lambda: var(True), "got True"),
    ("NaN bucket", lambda: numeric_var((0.0, float("nan"))), "finite number; got nan"),
    ("infinite bucket", lambda: numeric_var((0.0, float("inf"))), "finite number; got inf"),
    ("unhashable bucket", lambda: numeric_var((0.0, [1])), "a bucket is a number; got [1]"),
    ("text for a bucket", lambda: numeric_var(("low", "high")), "a bucket is a number; got 'low'"),
    ("buckets out of order", lambda: numeric_var((1, 0)), "in ascending order; 0.0 comes after 1.0"),
    ("bucket twice", lambda: numeric_var((0, 1, 1)), "bucket 1.0 is listed twice"),
    ("buckets are no tuple", lambda: numeric_var(3), "are a tuple; got 3"),
    ("no sets", lambda: set_var(3, []), "at least one set"),
    ("set twice", lambda: set_var(3, [{1}, {1}]), "the set {1} is listed twice"),
    ("set out of range", lambda: set_var(3, [{3}]), "out of range: 3 is outside 0..2"),
    ("sets of no sets", lambda: set_var(3, [1, 2]), "a set of integers; got 1"),
    # starts
    ("two starts", lambda: var(3, default=1, input_init_fn=lambda t: t), "give one of input_init_fn"),
    (
        "default out of range",
        lambda: build(add={"c": var(3, default=3)}),
        "'c' cannot start everywhere; give it a default: 3",
    ),
    (
        "numerical without a default",
        lambda: build(add={"m": numeric_var((1, 2))}),
        "give it a default: 0.0 is not among",
    ),
    ("set without a default", lambda: build(add={"s": set_var(3, [{1}])}), "give it a default: {} is not among"),
    (
        "start out of range",
        lambda: build(add={"c": var(2, input_init_fn=lambda token: token)}),
        "'c' cannot start from token 2: 2 is outside 0..1",
    ),
    (
        "negative start",
        lambda: build(add={"c": var(5, position_init_fn=lambda i: i - 1)}, position_range=4),
        "'c' cannot start at position 0: -1 is outside 0..4",
    ),
    (
        "start function raises",
        lambda: build(add={"c": var(5, input_init_fn=lambda token: 1 // token)}),
        "'c' cannot start from token 0: its function raised ZeroDivisionError",
    ),
    (
        "start is no integer",
        lambda: build(add={"c": var(5, input_init_fn=lambda token: token / 1)}),
        "0.0 is no integer; allowed are 0..4",
    ),
    ("no position_range", lambda: build(add={"c": var(5, position_init_fn=lambda i: i)}), "needs a position_range"),
    # heads
    (
        "unknown query",
        lambda: build(heads={"h": qkv("q", "a", "a")}),
        "head 'h' reads 'q', which is not a variable; variables: a, b, n",
    ),
    (
        "unknown value",
        lambda: build(heads={"h": v_relative("idxx", 1)}),
        "head 'h' reads 'idxx', which is not a variable",
    ),
    (
        "head reads a head",
        lambda: build(heads={"h": qkv("left", "a", "b")}),
        "heads run in parallel, each on the state before the sub-layer; copy 'left'",
    ),
    (
        "ranges differ",
        lambda: build(add={"c": var(4)}, heads={"h": qkv("c", "a", "b")}),
        "ranges over 4 values and the key 'a' over 3",
    ),
    ("numerical query", lambda: build(heads={"h": qkv("n", "a", "b")}), "the query 'n' is numerical"),
    ("numerical key", lambda: build(heads={"h": qkv("a", "n", "b")}), "the key 'n' is no categorical variable"),
    ("set as value", lambda: build(add={"s": set_var(3, [{}])}, heads={"h": v_relative("s", 1)}), "heads move no sets"),
    (
        "output of another kind",
        lambda: build(heads={"h": v_relative("a", 1, output_spec=numeric_var((0, 1)))}),
        "the value 'a' is categorical, but the output is numerical",
    ),
    (
        "output too small",
        lambda: build(heads={"h": v_relative("a", 1, output_spec=var(2))}),
        "give the output at least 3",
    ),
    ("no relative position", lambda: build(heads={"h": qkv("a", "a", "a", relative_positions=())}), "it reads nothing"),
    (
        "relative position twice",
        lambda: build(heads={"h": qkv("a", "a", "a", relative_positions=(1, 1))}),
        "twice: 1, 1",
    ),
    (
        "relative positions no tuple",
        lambda: qkv("a", "a", "a", relative_positions=-1),
        "are a tuple, such as (-1,); got -1",
    ),
    ("relative position a float", lambda: v_relative("a", 0.5), "are whole numbers"),
    ("name used twice", lambda: build(heads={"a": v_relative("b", 1)}), "'a' is both a variable and a head"),
    ("causal, right only", lambda: build(heads={"h": v_relative("a", 1)}, causal=True), "looks only to the right (1)"),
    # programs
    ("reserved name", lambda: build(add={"_x": var(2)}), "names that begin with an underscore"),
    ("name is no string", lambda: build(add={3: var(2)}), "are strings; got 3"),
    ("variable without var", lambda: build(add={"c": 3}), "declare it with var, numeric_var or set_var"),
    ("head without qkv", lambda: build(heads={"h": "a"}), "declare it with qkv or v_relative"),
    ("variables is a list", lambda: build(variables=["a"]), "a dictionary from names"),
    (
        "unknown output",
        lambda: build(output_name="z"),
        "the program's output is 'z', which is not a variable; variables: a, b, n, left",
    ),
    (
        "output of a head as output",
        lambda: build(output_name="left"),
        "'left', an attention output, which is NULL after",
    ),
    ("set as output", lambda: build(add={"s": set_var(3, [{}])}, output_name="s"), "a set; it has to be categorical"),
    ("halting on nothing", lambda: build(halt=halt_spec("z", 1)), "halting waits for 'z', which is not a variable"),
    ("halting on a head", lambda: build(halt=halt_spec("left", 1)), "'left', an attention output"),
    ("halting never", lambda: build(halt=halt_spec("a", 3)), "a value that 'a' never has: 3 is outside 0..2"),
    ("halting on a number", lambda: build(halt=halt_spec("n", 1)), "'n', which has to be categorical"),
    ("halt is a tuple", lambda: build(halt=("a", 1)), "halt is made by halt_spec"),
    ("no MLP", lambda: build(ffn_fn=None), "give either ffn_fn or rules"),
    ("two MLPs", lambda: build(rules=[]), "give either ffn_fn or rules"),
    ("MLP is no function", lambda: build(ffn_fn=3), "ffn_fn is a function of the variables; got 3"),
    ("no tokens", lambda: build(input_range=None), "give either input_range"),
    ("empty vocabulary", lambda: build(input_range=None, tokens=(), variables={"a": var(3)}), "at least one token"),
    ("token twice", lambda: build(input_range=None, tokens=("x", "x")), "token 'x' is listed twice"),
    ("tokens are numbers", lambda: build(input_range=None, tokens=(1, 2)), "tokens are a tuple of strings"),
    ("no positions", lambda: build(position_range=0), "1 or more; got 0"),
    # rules
    ("conflict", lambda: RuleSet((rule("a", 0, 1, a=0, b=1), rule("a", 0, 2, a=0))), "two rules can both change 'a'"),
    ("same rule twice", lambda: RuleSet((rule("a", 0, 1, a=0), rule("a", 0, 1, a=0))), "two rules can both change 'a'"),
    ("old value left out", lambda: rule("a", 0, 1, b=0), "changes 'a' from 0 constrains it to that value"),
    ("rule without effect", lambda: rule("a", 1, 1, a=1), "changes nothing"),
    (
        "constrained twice",
        lambda: Rule("a", 0, 1, (Constraint("a", 0), Constraint("b", 1), Constraint("b", 2))),
        "constrains a variable twice",
    ),
    (
        "rule on a stranger",
        lambda: build(ffn_fn=None, rules=[rule("a", 0, 1, a=0, z=0)]),
        "unknown variable 'z' in the rule",
    ),
    ("rule out of range", lambda: build(ffn_fn=None, rules=[rule("a", 0, 3, a=0)]), "'a': 3 is outside 0..2"),
    (
        "rule sets a head",
        lambda: build(ffn_fn=None, rules=[rule("left", 0, 1, left=0)]),
        "'left' cannot be set by the MLP",
    ),
    ("builder, unknown name", lambda: builder().get("z"), "'z' is not a variable; variables: a, b, free, left"),
    ("builder, no name", lambda: builder().get(), "get needs the name of a variable"),
    ("builder sets a head", lambda: builder().set("left", 1), "'left' cannot be set by the MLP"),
    ("builder, no buckets", lambda: builder().get("free"), "'free' has no buckets"),
    ("builder, suspended generator", suspended_generator, "a loop over 'a' was left half-way in 'helper'"),
    # MLP functions
    (
        "function reads a stranger",
        lambda: lower(lambda z: z["z"]),
        "reads 'z', which is not a variable; variables: a, b, n, left",
    ),
    ("function sets a stranger", lambda: lower(set_to("z", 1)), "sets 'z', which is not a variable"),
    ("function sets a head", lambda: lower(set_to("left", 1)), "sets attention output 'left'"),
    (
        "function reads without buckets",
        lambda: lower(lambda z: z["f"], add={"f": numeric_var()}),
        "'f', which has no buckets",
    ),
    ("function not deterministic", not_deterministic, "not deterministic"),
    ("function keeps values", keeps_values, "not deterministic"),
    ("function asks for types", depends_on_the_type, "not deterministic, or looks at more"),
    ("too many paths", too_many_paths, "more than 100 paths. Most come from line"),
    # running
    ("no end", lambda: run(build(halt=None), [1]), "no halting condition, so it needs max_layers"),
    (
        "runs for ever",
        lambda: run(build(ffn_fn=lambda z: z.__setitem__("n", 1 - z["n"]), halt=halt_spec("a", 1)), [1]),
        "it never halts",
    ),
    ("max_layers is negative", lambda: run(build(), [1], max_layers=-1), "0 or more; got -1"),
    ("token out of range", lambda: run(build(), [3]), "3 at position 0 is not a token of this program; tokens: 0..2"),
    ("token -1", lambda: run(build(), [0, -1]), "-1 at position 1 is not a token"),
    ("text for integers", lambda: run(build(), "01"), "'0' at position 0 is not a token of this program; tokens: 0..2"),
    ("token unhashable", lambda: run(build(), [[1]]), "[1] at position 0 is not a token"),
    (
        "input too long",
        lambda: run(build(position_range=2), [0, 0, 0]),
        "3 tokens are too many; this program has 2 positions",
    ),
    (
        "reading UNDEFINED, no match",
        lambda: execute(lambda z: z.__setitem__("b", z["left"]), halt=None),
        "layer 1, position 0: the MLP reads 'left', which is UNDEFINED: its head reads no position",
    ),
    (
        "reading UNDEFINED, two matches",
        lambda: execute(lambda z: z.__setitem__("a", z["all"]), heads={"all": qkv("a", "a", "b")}, halt=None),
        "its head reads 2 positions, not one",
    ),
    (
        "trap, out of the domain",
        lambda: execute(lambda z: z.__setitem__("n", z["b"]), halt=None),
        "layer 1, position 1: the MLP traps where b=2: 'n' is set out of its domain: 2.0 is not among the buckets 0, 1",
    ),
    (
        "trap, exception",
        lambda: execute(lambda z: z.__setitem__("a", 1 // (z["b"] - 1)), halt=None),
        "ZeroDivisionError: integer division or modulo by zero (line",
    ),
    ("generating without causal", lambda: generate(build(), [1]), "only a causal program can generate"),
    ("generating no tokens", lambda: generate(build(causal=True, output_name="n"), [1]), "has to stand for a token"),
    ("empty prompt", lambda: generate(build(causal=True), []), "the prompt is empty"),
    ("unknown stop", lambda: generate(build(causal=True), [1], stop=7), "the stop token 7 is not a token"),
    # compiling
    ("means of any length", lambda: compile(parity.by_sum()), "takes means over inputs of any length"),
    ("means too close", lambda: compile(parity.by_sum(4000), max_length=4000), "too close to tell apart in float32"),
    (
        "means in bfloat16",
        lambda: compile(parity.by_sum(), max_length=300, dtype="bfloat16"),
        "too close to tell apart in bfloat16",
    ),
    (
        "means with plain ReLUs",
        lambda: compile(large_steps(), activation="relu"),
        "rounds away the difference of two plain ReLUs; use activation='clipped'",
    ),
    (
        "output values in bfloat16",
        lambda: compile(
            build(add={"m": numeric_var(input_init_fn=(0.501, 0.502, 1.0).__getitem__)}, output_name="m"),
            dtype="bfloat16",
        ),
        "the output 'm' can be 0.502 and 0.501, which are too close to tell apart in bfloat16",
    ),
    ("unknown dtype", lambda: compile(parity.relative(), dtype="int8"), "no number format 'int8'; formats: float64"),
    ("unknown activation", lambda: compile(parity.relative(), activation="gelu"), "activations: clipped, relu"),
    ("sharpness too small", lambda: compile(parity.relative(), sharpness=5), "sharpness 5 lets what does not match"),
    ("no layers", lambda: compile(parity.relative(), layers=0), "layers is a whole number, 1 or more; got 0"),
    ("no length", lambda: compile(parity.relative(), max_length=0), "max_length is a whole number, 1 or more; got 0"),
    # models
    ("model, unknown token", lambda: model().run(["START", "2"]), "'2' at position 1 is not a token of this model"),
    ("model, token -1", lambda: compile(build()).run([-1]), "-1 at position 0 is not a token of this model; tokens: 0"),
    ("model, no sequence", lambda: model().run(3), "inputs are a sequence of tokens; got 3"),
    (
        "model, input too long",
        lambda: compile(parity.absolute(8)).run([0] * 9),
        "9 tokens are too many; this model was compiled for 8",
    ),
    ("model, empty batch", lambda: model().run_batch([]), "the batch is empty"),
    ("model, batch of one text", lambda: model().run_batch("101"), "a batch is a sequence of inputs"),
    (
        "model, no end",
        lambda: compile(parity.by_sum(9), max_length=9).run(["START"]),
        "this model has no halting condition, so it needs max_layers",
    ),
    ("model, runs for ever", lambda: model().run(["1"]), "never halts"),
    ("model, max_layers is negative", lambda: model().run(["START"], -1), "max_layers is a whole number, 0 or more"),
    ("model, format of torch", lambda: model().astype("bfloat16"), "NumPy computes in float32 or float64"),
    (
        "model, narrower than compiled for",
        lambda: compile(parity.relative(), dtype="float64").astype("float32"),
        "this model is exact in float64 and wider, not in float32",
    ),
    ("model, generating without causal", lambda: model().generate(["START"]), "only a causal model can generate"),
    ("model, no such layer", lambda: model().packed(1), "there is no layer 1; the model holds 1"),
    ("no file", lambda: load("nothing.safetensors"), "there is no file 'nothing.safetensors'"),
    ("file of another version", other_version, "is in format alta-model 99; this alta reads alta-model 1"),
    (
        "nowhere to save",
        lambda: model().save(Path("no", "such", "folder.safetensors")),
        "folder.safetensors' cannot be written",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_mistake(mistake, message):
    with pytest.raises(AltaError, match=re.escape(message)):
        mistake()


def test_mistakes_that_do_not_depend_on_each_other_are_told_together():
    heads = {"h": qkv("q", "a", "a"), "g": qkv("n", "a", "b")}
    with pytest.raises(AltaError, match="head 'h' reads 'q'") as error:
        build(heads=heads, output_name="z", halt=halt_spec("a", 3))
    assert [note.split(":")[0] for note in error.value.__notes__] == [
        "head 'g'",
        "the program's output is 'z', which is not a variable; variables",
        "halting waits for a value that 'a' never has",
    ]
    with pytest.raises(AltaError, match="'c' cannot start everywhere") as error:
        build(add={"c": var(2, default=2), "d": 3})
    assert error.value.__notes__ == ["variable 'd' is 3; declare it with var, numeric_var or set_var"]


def test_there_are_many_rows():
    assert len(MISTAKES) >= 40
    assert len({name for name, _, _ in MISTAKES}) == len(MISTAKES)


def test_the_small_program_itself_is_right():
    assert build().rules.core
