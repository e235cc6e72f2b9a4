"""The command line, as people and scripts use it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from alta import ProgramError, run
from alta.cli.app import app
from alta.cli.source import Source
from alta.programs import BUNDLED

PROGRAM = """
from alta import halt_spec, program_spec, v_relative, var

def mlp(z):
    if not z["done"] and z["done_left"]:
        z["last"], z["done"] = z["last_left"], 1

def build():
    return program_spec(
        variables={"last": var(4, input_init_fn="abc|".index), "done": var(2, input_init_fn=lambda t: t == "|")},
        heads={"last_left": v_relative("last", -1), "done_left": v_relative("done", -1)},
        ffn_fn=mlp, output_name="last", tokens=tuple("abc|"), halt=halt_spec("done", 1),
    )

program = build()
number = 3
"""


CLOSE = """
from alta import numeric_var, program_spec, var

values = (0.0, 1e-9, 1.0)
program = program_spec(
    variables={"n": numeric_var(values, input_init_fn=values.__getitem__), "a": var(3)},
    heads={}, ffn_fn=lambda z: z.__setitem__("a", values.index(z["n"])), output_name="a", input_range=3,
)
"""


def alta(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from alta.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", **environment},
    )


def ok(*arguments: str) -> str:
    result = alta(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refusal(*arguments: str) -> str:
    result = alta(*arguments)
    assert result.returncode == 1, result.stdout
    return result.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM)
    return path


def test_list_names_every_program():
    listed = ok("list")
    assert [line.split()[0] for line in listed.splitlines()] == list(BUNDLED)
    assert [entry["name"] for entry in json.loads(ok("list", "--json"))] == list(BUNDLED)


def test_run_prints_trace_outputs_and_layers():
    printed = ok("run", "parity-relative", "101")
    assert "parity_left" in printed
    assert "\noutputs  0 1 1 0\ndecoded  parity 0\nlayers   3, halted\n" in printed
    assert "the Transformer agrees: the same state after each of 6 sub-layers" in printed
    assert "agrees" not in ok("run", "parity-relative", "101", "--no-model")


def test_run_as_json():
    data = json.loads(ok("run", "addition", "95+7", "--json", "--trace"))
    assert data["decoded"] == "102"
    assert data["layers"] == 4
    assert data["halted"] is True
    states = data["trace"]["states"]
    assert [state["after"] for state in states[:3]] == ["start", "attention 1", "mlp 1"]
    assert len(states) == 9
    assert states[0]["positions"][0]["a"] is None
    assert states[1]["positions"][0]["a"] == "undefined"
    assert data["trace"]["fired"][0][0][0]["set"] == "started"


def test_long_traces_are_printed_on_demand():
    assert "choose with --variables" in ok("run", "scan", "jump twice")
    chosen = ok("run", "scan", "jump twice", "--variables", "step,reading", "--layers", "0-2", "--positions", "0,1")
    assert chosen.splitlines()[0].split() == ["start", "attn", "mlp", "attn", "mlp"]
    assert len(ok("run", "scan", "jump", "--trace").splitlines()) > 400


def test_generate():
    assert "tokens  2 0 1 END\n" in ok("generate", "addition-decoder", "95+7")
    data = json.loads(ok("generate", "parity-scratchpad", "1011", "--json"))
    assert data["tokens"] == ["1", "1", "0", "1", "END"]
    assert data["stopped"] is True
    assert len(data["layers"]) == 5


def test_explore(tmp_path):
    path = tmp_path / "trace.html"
    printed = ok("explore", "addition-decoder", "95+7", "-o", str(path))
    assert printed == f"6 positions, 4 layers\nsaved to {path}, {path.stat().st_size:,} bytes\n"
    data = json.loads(ok("explore", "parity-sum", "101", "-o", str(path), "--json"))
    assert data == {"file": str(path), "bytes": path.stat().st_size, "positions": 4, "layers": 1}
    assert '"title":"parity-sum","caption":"101"' in path.read_text(encoding="utf-8")
    model = str(tmp_path / "parity.safetensors")
    ok("compile", "parity-relative", "-o", model)
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    result = alta("explore", model, "101", "-o", str(path), "--max-layers", "2", "--open", BROWSER=f"{browser} %s")
    assert result.stdout.startswith("4 positions, 2 layers\n")
    assert '"title":"parity.safetensors"' in path.read_text(encoding="utf-8")
    assert (tmp_path / "opened").read_text().strip() == path.as_uri()


def test_rules():
    printed = ok("rules", "parity-relative")
    assert "done=0 ∧ done_left=1 ⟹ done := 1" in printed
    assert printed.splitlines()[-1].strip() == "7 rules: 3 core, 4 resets; 0 traps"
    data = json.loads(ok("rules", "parity-relative", "--json"))
    assert data["counts"] == {"rules": 7, "core": 3, "resets": 4, "traps": 0}
    assert {"if": {"done": 0, "done_left": 1}, "set": "done", "from": 0, "to": 1} in data["list"]
    assert json.loads(ok("rules", "subleq", "--json", "--counts"))["counts"]["resets"] == 165
    assert "parity_left :=" not in ok("rules", "parity-relative", "--variables", "done")


def test_models_in_files(tmp_path):
    path = str(tmp_path / "addition.safetensors")
    assert "saved to" in ok("compile", "addition", "-o", path)
    assert json.loads(ok("compile", "addition", "-o", path, "--json"))["bytes"] == Path(path).stat().st_size
    for typed in ("95+7", " 95 + 7"):
        printed = ok("run", path, typed, "--no-trace")
        assert printed.startswith("outputs  10 10 1 0 2 10\ndecoded  102\nlayers   4, halted\n")
        assert "agrees" in printed
    assert ok("verify", path).startswith("certified")
    assert "2,623 rules" in ok("rules", path, "--counts")
    lines, records = tmp_path / "inputs.txt", tmp_path / "inputs.jsonl"
    lines.write_text("1+2\n\n30+4\n")
    records.write_text('"1+2"\n["START", "3", "+", "0", "END"]\n')
    for file in (lines, records):
        assert json.loads(ok("verify", path, "--inputs", str(file), "--json"))["inputs"] == 2
    records.write_text('"1+2"\n["START", 7]\n')
    assert "line 2 of" in alta("verify", path, "--inputs", str(records)).stderr
    truncated = tmp_path / "truncated.safetensors"
    truncated.write_bytes(Path(path).read_bytes()[:5000])
    assert "is no model, or is damaged" in alta("run", str(truncated), "1+2").stderr


def test_a_saved_model_that_disagrees_is_an_error(tmp_path):
    from alta import compile
    from alta.programs import parity

    model = compile(parity.relative())
    model.weights.layers[0].mlp[0].weight.values[0] = 0
    model.save(tmp_path / "wrong.safetensors")
    for arguments in (
        ("run", str(tmp_path / "wrong.safetensors"), "1011"),
        ("verify", str(tmp_path / "wrong.safetensors")),
    ):
        result = alta(*arguments)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)


def test_verify_compiles_programs(file):
    assert "on every input of any length" in ok("verify", str(file))
    assert "up to 20 tokens" in ok("verify", "parity-sum", "--max-length", "20", "--activation", "relu")
    assert "takes means over inputs of any length" in alta("verify", "parity-sum").stderr


def test_a_program_without_a_transformer_still_runs(tmp_path):
    path = tmp_path / "close.py"
    path.write_text(CLOSE)
    printed = ok("run", str(path), "0 1", "--max-layers", "1")
    assert "outputs  0 1" in printed
    assert "no Transformer in float32: the buckets 0 and 1e-09 of 'n' are too close to tell apart" in printed


@pytest.fixture
def bits(tmp_path: Path) -> tuple[str, str]:
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text("\n".join(format(n, "b") for n in range(64)))
    long.write_text("\n".join(format(n, "b") for n in range(64, 256)))
    return str(short), str(long)


def test_coverage(bits, tmp_path):
    printed = ok("coverage", "parity-relative", bits[0], "-o", str(tmp_path / "seen.json"))
    assert "rules      3 of 3 fired, and 4 of 4 resets" in printed
    assert json.loads((tmp_path / "seen.json").read_text())["inputs"] == 64
    data = json.loads(ok("coverage", "scan", "mcd1:test", "--json"))
    assert (data["inputs"], data["failed"]) == (1045, 0)


def test_minimal_and_predict(bits, tmp_path):
    short, long = bits
    small = str(tmp_path / "small.json")
    assert ok("minimal", "parity-sum", "--train", short, "-o", small).startswith("10 rules (3 and 7 resets) of 514")
    assert "outputs  0 0 0 0 0 0 0 0\n" in ok("run", small, "1111111", "--no-trace")
    assert "outputs  1 1 1 1 1 1\n" in ok("run", small, "11111", "--no-trace")
    model = str(tmp_path / "small.safetensors")
    ok("minimal", "parity-sum", "--train", short, "-o", model)
    assert "certified" in ok("verify", model)
    picture = tmp_path / "ones.svg"
    printed = ok("predict", "parity-sum", "--train", short, "--test", long, "--by", "ones", "--plot", str(picture))
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if "%" in line}
    assert rows["7"] == ["8", "100.0%", "0.0%"]
    assert all(rows[str(ones)][2] == "100.0%" for ones in (1, 2, 3, 4, 5, 6, 8))
    assert "rules never fired" in printed
    assert picture.stat().st_size > 1000
    data = json.loads(ok("predict", "scan", "--train", "mcd1:train", "--test", "mcd1:test", "--by", "none", "--json"))
    assert data["accuracy"] == {"original": 1.0, "minimal": 1.0}


def test_predictions_of_several_programs_by_several_groupings(bits, tmp_path):
    short, long = bits
    picture = tmp_path / "accuracy.svg"
    names = ("parity-relative", "parity-sum")
    arguments = ("predict", *names, "--train", short, "--test", long, "--by", "length", "--by", "ones")
    printed = ok(*arguments, "--plot", str(picture))
    assert picture.read_text().startswith("<?xml")
    parts = [part.splitlines() for part in printed.split("\n\n")]
    assert [part[0] for part in parts] == list(names)
    assert [line.split()[:2] for line in parts[1] if line.startswith("by ")] == [["by", "length"], ["by", "ones"]]
    rows = [line.split() for line in parts[1]]
    assert ["7", "8", "100.0%", "0.0%"] in rows
    assert ["9", "128", "100.0%", "94.5%"] in rows  # START and 8 bits
    data = json.loads(ok(*arguments, "--json"))
    assert list(data) == list(names)
    assert data["parity-sum"]["groups"]["ones"][6] == {"group": 7, "inputs": 8, "original": 8, "minimal": 0}


def test_draw(file, tmp_path):
    for name, arguments in {
        "trace.svg": ("trace", str(file), "|ab", "--variables", "last,done", "--layers", "0-1"),
        "trace.pdf": ("trace", "parity-absolute", "101", "--positions", "0,2"),
        "attention.png": ("attention", "addition", "95+7", "--heads", "a,b"),
        "weights.svg": ("weights", "parity-sum", "--max-length", "9", "--parts", "share"),
    }.items():
        path = tmp_path / name
        printed = ok("draw", *arguments, "-o", str(path))
        assert printed == f"wrote {path}, {path.stat().st_size:,} bytes\n"
    for arguments, message in (
        (("trace", str(file), "|ab", "-o", "x.gif"), "figures are saved as NAME.svg, NAME.pdf or NAME.png"),
        (("trace", str(file), "|ab", "--layers", "9", "-o", "x.svg"), "there is no layer 9 in this run; the last is 2"),
        (("weights", "parity-sum", "-o", "x.svg"), "takes means over inputs of any length"),
        (
            ("weights", "addition", "--parts", "x", "-o", "x.svg"),
            "there is no part 'x' of this model; parts: embeddings",
        ),
    ):
        result = alta("draw", *arguments)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert message in result.stderr


def test_optimum_and_minimal_rules(bits):
    assert "no strict coordinate-wise local optimum" in ok("optimum", "parity-relative", bits[0], "--alpha", "3000")
    assert ok("optimum", "parity-relative", bits[0]).startswith("a strict coordinate-wise local optimum: 3 rules")
    assert json.loads(ok("optimum", "parity-relative", bits[0], "--json"))["optimum"] is True
    result = alta("minimal", "addition", "--train", bits[0].replace("short", "sums"), "--constraints")
    assert "cannot be read" in result.stderr
    Path(bits[0]).write_text("\n".join(f"{a}+{b}" for a in range(12) for b in range(12)))
    result = alta("minimal", "addition", "--train", bits[0], "--constraints", "--search", "2")
    assert "constraints are left; constraints were tried" in result.stderr
    assert result.returncode == 0
    result = alta("minimal", "addition", "--train", bits[0], "--constraints", "--smallest")
    assert "constraints are left; no smaller set does the same on the data" in result.stderr
    assert "(166 and 31 resets)" in result.stdout
    result = alta("minimal", "addition", "--train", bits[0], "--test", bits[0], "--constraints", "--json")
    assert "constraints are left" in result.stderr
    assert json.loads(result.stdout)["accuracy"] == {"original": 1.0, "minimal": 1.0}


def test_simplicity(bits):
    printed = ok("simplicity", "parity-relative", "parity-sum", "--train", bits[0]).splitlines()
    measures = ["rules", "resets", "constraints", "heads", "variables", "values", "layers"]
    assert printed[0].split() == measures
    rows = [line.split() for line in printed[1:]]
    assert rows[0] == ["parity-relative", "written", "3", "4", "10", "2", "2", "8", "6"]
    assert rows[1][1:4] == ["3", "4", "10"]
    assert rows[2][:4] == ["parity-sum", "written", "257", "257"]
    assert rows[3][:3] == ["minimal", "3", "7"]
    data = json.loads(ok("simplicity", "parity-sum", "--train", bits[0], "--json"))
    assert data["parity-sum"]["minimal"]["resets"] == 7


def test_plan():
    printed = ok("plan", "addition")
    assert "where at_a is one, once for all positions: a" in printed
    assert json.loads(ok("plan", "addition", "--json"))["plan"] == printed.splitlines()


def test_a_program_of_ones_own(file):
    for name in (f"{file}:program", f"{file}:build", str(file)):
        assert "outputs  3 3 3\n" in ok("run", name, "|ab")
    assert "outputs  3 3 3\n" in ok("run", str(file), "| a b")
    assert "outputs  3 3 3\n" in ok("run", str(file), "|,a,b")


BAD = [
    (
        ("run", "nobody", "1"),
        "'nobody' is no bundled program, nor path/to/file.py:name, program.json or model.safetensors",
    ),
    (("run", "parity-relative", "102"), "a string of bits, such as 10110, is made of 0 and 1; got '102'"),
    (("run", "addition", "1+x"), "a sum is written like 12+34; got '1+x'"),
    (("run", "sort-unique", "3 x"), "a list of numbers is written like 3 1 2"),
    (("run", "sort-unique", "3 3"), "the MLP reads 'ranked_here', which is UNDEFINED"),
    (("run", "scan", "jump up"), "'up' is no word of SCAN"),
    (("run", "scan", "jump jump"), "the words do not make up one command"),
    (("run", "parity-relative", "1", "--variables", "nobody"), "'nobody' is not a variable; variables: parity, done"),
    (("run", "parity-relative", "1", "--layers", "7"), "there is no layer 7 in this run; the last is 1"),
    (("run", "parity-relative", "1", "--positions", "x"), "positions are written like 0,3-5; got 'x'"),
    (("generate", "addition", "1+2"), "only a causal program can generate"),
    (("compile", "addition", "-o", "model.bin"), "a model is saved as NAME.safetensors; got 'model.bin'"),
    (("compile", "addition", "-o", "no/such/folder.safetensors"), "cannot be written"),
    (("compile", "parity-relative", "-o", "x.safetensors", "--dtype", "int8"), "there is no number format 'int8'"),
    (("explore", "addition", "1+2", "-o", "trace.txt"), "a page is saved as NAME.html; got 'trace.txt'"),
    (("explore", "addition", "1+2", "-o", "no/such/folder.html"), "'no/such/folder.html' cannot be written"),
    (("explore", "addition", "1+x", "-o", "x.html"), "a sum is written like 12+34"),
    (("verify", "addition", "--inputs", "nowhere.txt"), "'nowhere.txt' cannot be read"),
    (
        ("predict", "scan", "--train", "mcd1:dev", "--test", "mcd1:test"),
        "a split has the parts train and test; got 'dev'",
    ),
    (("minimal", "parity-relative", "--train", "length:train"), "'length:train' cannot be read"),
    (("run", "nobody.json", "1"), "'nobody.json' is no program that can be read"),
    (("run", "nobody.safetensors", "1"), "there is no file 'nobody.safetensors'"),
    (("run", "nobody.py:program", "1"), "there is no file 'nobody.py'"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_errors_are_one_line(arguments, message):
    result = alta(*arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


def test_errors_in_a_file_of_ones_own(file):
    for name, message in ((f"{file}:nobody", "has no 'nobody'"), (f"{file}:number", "is no program")):
        result = alta("run", name, "|")
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
        assert message in result.stderr
    file.write_text("this is no Python")
    assert "cannot be loaded: SyntaxError" in alta("run", str(file), "|").stderr
    file.write_text("import alta\nalta.var(0)")
    assert "1 or more; got 0" in alta("run", str(file), "|").stderr


def test_debug_shows_the_traceback():
    for arguments in (("--debug", "run", "nobody", "1"), ("run", "nobody", "1", "--debug")):
        assert "Traceback" in alta(*arguments).stderr


def test_wrong_usage_exits_with_2():
    assert alta("run").returncode == 2
    assert alta("frobnicate").returncode == 2


def commands(of: typer.Typer = app, *before: str) -> Iterator[tuple[str, ...]]:
    """The names of all commands, those of groups after their group's."""
    for command in of.registered_commands:
        yield (*before, str(command.name))
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, *before, str(group.name))


def helped(*command: str) -> str:
    """What --help prints, on a terminal that is wide enough for one line an option."""
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "400", "TERM": "dumb", "NO_COLOR": "1"})
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("command", sorted(commands()), ids=" ".join)
def test_every_command_has_help_with_examples(command):
    printed = helped(*command)
    assert "Example" in printed
    assert f"alta {' '.join(command)}" in printed


def test_help_tells_exit_codes():
    assert "Exit codes: 0, all is well; 1, something is wrong" in helped()
    assert ok("--version").startswith("alta ")


def test_options_mean_the_same_everywhere():
    shared = ("--json", "--max-layers", "--max-length", "--dtype", "--variables", "--train")
    known: dict[str, set[str]] = {name: set() for name in shared}
    for command in commands():
        for name, text in re.findall(r"(--[a-z-]+) .*?> +(.*?) +│", helped(*command)):
            if name in known:
                known[name].add(" ".join(text.split()))
    assert {name: len(texts) for name, texts in known.items()} == dict.fromkeys(shared, 1)


def test_new_writes_a_program_that_runs_compiles_and_verifies(tmp_path):
    path = str(tmp_path / "largest.py")
    assert ok("new", path) == f"wrote {path}; next: alta check {path}, alta run {path} 'START 2 0 3 1'\n"
    assert "alta run largest.py 'START 2 0 3 1'" in Path(path).read_text()
    assert "outputs  0 2 2 3 3\n" in ok("run", path, "START 2 0 3 1")
    assert ok("verify", path).startswith("certified")
    assert ok("check", path).startswith("ok ")
    lines = tmp_path / "lines.txt"
    digits = [digits for length in range(5) for digits in product("0123", repeat=length)]
    lines.write_text("\n".join(" ".join(("START", *one)) for one in digits))
    assert "all of 341 inputs given halt" in ok("check", path, "--inputs", str(lines))
    program = Source(path).program
    for one in digits:
        outputs = run(program, ("START", *one)).outputs
        assert outputs == (0, *(max(map(int, one[: n + 1])) for n in range(len(one))))


def test_new_overwrites_only_when_told_to(tmp_path):
    path = tmp_path / "largest.py"
    path.write_text("mine")
    result = alta("new", str(path))
    assert (result.returncode, path.read_text()) == (1, "mine")
    assert "is there already; take another name, or --force" in result.stderr
    ok("new", str(path), "--force")
    assert path.read_text() != "mine"
    assert "a program is written to NAME.py; got" in alta("new", str(tmp_path / "largest.txt")).stderr
    assert "cannot be written" in alta("new", str(tmp_path / "no" / "largest.py")).stderr


BROKEN = """
from alta import *

def mlp(z):
    z["a"] = z["b"]

program = program_spec(
    variables={"a": var(2), "c": var(3)},
    heads={"left": v_relative("aa", -1), "other": qkv("c", "a", "a")},
    ffn_fn=mlp, output_name="x", input_range=2,
)
"""

READS_A_STRANGER = BROKEN.replace('"aa"', '"a"').replace('"c", "a"', '"a", "a"').replace('"x"', '"a"')

STARTS_WRONG = """import alta

def start(token):
    return 1 // token

program = alta.program_spec(
    variables={"a": alta.var(2, input_init_fn=start)}, heads={}, ffn_fn=print, output_name="a", input_range=2
)
"""


def test_check_tells_all_that_is_wrong_with_its_line(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    result = alta("check", str(path))
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        f"problem  {path}:7: head 'left' reads 'aa', which is not a variable; variables: a, c, left, other",
        f"problem  {path}:7: head 'other': the query 'c' ranges over 3 values and the key 'a' over 2; "
        "give both the same range",
        f"problem  {path}:7: the program's output is 'x', which is not a variable; variables: a, c, left, other",
    ]
    result = alta("run", str(path), "1")
    assert result.stderr.startswith(f"alta: {path}:7: head 'left' reads 'aa'")
    assert result.stderr.endswith("(and 2 more: alta check tells all)\n")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (READS_A_STRANGER, 5, "the MLP function reads 'b'"),
        ("from alta import var\n\nx = var(0)\n", 3, "1 or more; got 0"),
        (STARTS_WRONG, 4, "ZeroDivisionError"),
        ("def program():\n    return missing\n", 2, "raises NameError: name 'missing' is not defined"),
        ("x = 1\nx = (\n", 2, "SyntaxError"),
    ],
)
def test_errors_have_the_line_of_ones_own_file(tmp_path, monkeypatch, text, line, message):
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text(text)
    for path in ("broken.py", str(tmp_path / "broken.py")):
        with pytest.raises(ProgramError, match=message) as error:
            Source(f"{path}:program")
        assert str(error.value).startswith(f"{path}:{line}: ")


def test_tokens_of_several_letters_need_spaces_between_them(tmp_path, file):
    starter = str(tmp_path / "starter.py")
    ok("new", starter)
    assert "'S' is not a token" in (said := refusal("run", starter, "START20"))
    assert said.endswith("; put spaces between tokens\n")
    assert "put spaces" not in refusal("run", str(file), "|ax")


def test_check_with_inputs(tmp_path, file):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text("|ab\n|\n")
    bad.write_text("|ab\nab\n")
    printed = ok("check", str(file), "--inputs", str(good))
    assert "ok       all of 2 inputs given halt within 200 layers, without an error" in printed
    result = alta("check", str(file), "--inputs", str(bad))
    assert result.returncode == 1
    assert "problem  1 of 2 inputs given stop with an error\n           'a b': layer 1, position 0" in result.stdout
    data = json.loads(alta("check", str(file), "--inputs", str(bad), "--json").stdout)
    assert data["problems"] == 1
    assert {finding["severity"] for finding in data["findings"]} == {"ok", "problem"}


def test_show():
    assert "no Transformer in float32: head 'share' takes means" in ok("show", "parity-sum")
    assert "MLP 259 wide" in ok("show", "parity-sum", "--max-length", "30")
    data = json.loads(ok("show", "parity-relative", "--json"))
    assert data["program"]["rules"][0] == ["2", "for parity"]
    assert data["model"]["matrices"][-1] == ["read-out", "2 × 9", "2"]


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -c 'from alta.cli import main; main()' rules subleq | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.stderr == ""


def test_train_goes_on_where_it_was_and_evaluate_reads_it(tmp_path):
    pytest.importorskip("torch")
    short, long = tmp_path / "short.txt", tmp_path / "long.txt"
    short.write_text("1\n10\n011\n")
    long.write_text("1\n1011\n")
    run = tmp_path / "run"
    data = ["--train", str(short), "--test", str(long)]
    command = ["train", "trace", "parity-relative", *data, "-o", str(run), "--hidden", "8"]
    facts = json.loads(ok(*command, "--steps", "50", "--json"))
    assert facts["step"] == 50 and facts["task"]["recipe"]["batch"] == 256
    assert "other settings; take another directory" in refusal(*command, "--steps", "60")
    assert json.loads(ok(*command, "--steps", "50", "--json"))["final"] == facts["final"]
    told = ok("evaluate", str(run), "-o", str(tmp_path / "model.safetensors"))
    assert told.startswith("after 50 of 50 steps\ntest ")
    assert re.search(r"\n +by length +inputs +right\n +2 +1 +\d", told)
    assert "the MLP has 3 layers; one that alta has compiled" in refusal("verify", str(tmp_path / "model.safetensors"))
    ok("evaluate", str(run), "--plot", str(tmp_path / "accuracy.svg"))
    assert "by length" in (tmp_path / "accuracy.svg").read_text()
    assert (tmp_path / "model.safetensors").stat().st_size > 1000
    assert "is no directory of `alta train`" in refusal("evaluate", str(tmp_path))


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (["paper", "read-out-sum-modulo"], 1),
        (["parity", "--layers", "1", "--dim", "16", "--hidden", "16", "--trained", "3"], 2),
    ],
)
def test_train(tmp_path, command, steps):
    pytest.importorskip("torch")
    told = json.loads(ok("train", *command, "--steps", str(steps), "-o", str(tmp_path), "--json"))
    assert told["step"] == steps and "accuracy" in told["final"]


def test_train_says_what_runs_there_are(tmp_path):
    pytest.importorskip("torch")
    assert "there is no run 'best'; runs: trace-relative" in refusal("train", "paper", "best", "-o", str(tmp_path))
    assert "there is no split 'none' of SCAN" in refusal("train", "scan", "none", "-o", str(tmp_path))
