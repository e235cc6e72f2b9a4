"""What the terminal shows: widths, colours, pipes. Small programs, with the output that people see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import alta
from alta import halt_spec, program_spec, run, v_relative, var
from alta.programs import parity
from alta.show.describe import describe
from alta.show.implications import implications
from alta.show.text import text
from alta.terminal import columns, cut, pad, paint, printable, wrap

COMMAND = [sys.executable, "-c", "from alta.cli import main; main()"]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def piped(*arguments: str, width: int) -> str:
    """What a command writes into a pipe."""
    environment = {**os.environ, "COLUMNS": str(width)}
    environment.pop("NO_COLOR", None)
    result = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=environment, check=True)
    return result.stdout


def on_a_terminal(*arguments: str, width: int, **environment: str) -> str:
    """What a command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    settings = {**settings, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=settings)
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # how Linux tells that nobody writes any more
        pass
    assert process.wait() == 0
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


RUN_80 = """\
                      start  attn  mlp  attn  mlp  attn  mlp  attn  mlp
                             1     1    2     2    3     3    4     4
0 START  parity       0      0     0    0     0    0     0    0     0
         done         1      1     1    1     1    1     1    1     1
         parity_left  ∅      ?*    ∅*   ?*    ∅*   ?*    ∅*   ?*    ∅*
         done_left    ∅      ?*    ∅*   ?*    ∅*   ?*    ∅*   ?*    ∅*
1 1      parity       1      1     1    1     1    1     1    1     1
         done         0      0     1*   1     1    1     1    1     1
         parity_left  ∅      0*    ∅*   0*    ∅*   0*    ∅*   0*    ∅*
         done_left    ∅      1*    ∅*   1*    ∅*   1*    ∅*   1*    ∅*
"""

RUN_60 = """\
                      start  attn  mlp  attn  mlp  attn  mlp
                             1     1    2     2    3     3
0 START  parity       0      0     0    0     0    0     0
         done         1      1     1    1     1    1     1
         parity_left  ∅      ?*    ∅*   ?*    ∅*   ?*    ∅*
         done_left    ∅      ?*    ∅*   ?*    ∅*   ?*    ∅*

                      attn  mlp
                      4     4
0 START  parity       0     0
         done         1     1
         parity_left  ?*    ∅*
         done_left    ?*    ∅*
"""


def test_run_at_80_columns_in_a_pipe():
    assert piped("run", "parity-relative", "1011", "--positions", "0-1", "--no-model", width=80).startswith(RUN_80)


def test_run_at_60_columns_goes_on_below():
    assert piped("run", "parity-relative", "1011", "--positions", "0", "--no-model", width=60).startswith(RUN_60)


def test_run_on_a_terminal_is_the_same_in_colour():
    """The terminal's own width counts, and colour stands for the stars."""
    arguments = ("run", "parity-relative", "1011", "--positions", "0-1", "--no-model")
    for width in (80, 160):
        seen = on_a_terminal(*arguments, width=width)
        plain = "\n".join(line.rstrip() for line in COLOUR.sub("", seen).splitlines()) + "\n"
        stars = (
            "\n".join(line.rstrip() for line in piped(*arguments, width=width).replace("*", " ").splitlines()) + "\n"
        )
        assert plain == stars
        assert seen.count("\x1b[1;36m") == RUN_80.count("*")
        assert max(map(len, plain.splitlines())) <= width


RULES_80 = """\
done=0 ∧ done_left=1 ∧ parity=0 ∧ parity_left=1 ⟹ \x1b[1;36mparity := 1\x1b[0m
done=0 ∧ done_left=1 ∧ parity=1 ∧ parity_left=1 ⟹ \x1b[1;36mparity := 0\x1b[0m
done=0 ∧ done_left=1 ⟹ \x1b[1;36mdone := 1\x1b[0m
parity_left=0 ⟹ \x1b[2mparity_left := ∅\x1b[0m
parity_left=1 ⟹ \x1b[2mparity_left := ∅\x1b[0m
done_left=0 ⟹ \x1b[2mdone_left := ∅\x1b[0m
done_left=1 ⟹ \x1b[2mdone_left := ∅\x1b[0m

       2 for parity
       1 for done
       7 rules: 3 core, 4 resets; 0 traps
"""

RULES_40 = """\
done=0 ∧ done_left=1 ∧ parity=0 ∧
    parity_left=1
    ⟹ parity := 1
done=0 ∧ done_left=1 ∧ parity=1 ∧
    parity_left=1
    ⟹ parity := 0
"""


def test_rules_on_a_terminal():
    assert on_a_terminal("rules", "parity-relative", width=80) == RULES_80
    assert on_a_terminal("rules", "parity-relative", width=160) == RULES_80


def test_no_color_and_dumb_terminals_are_respected():
    plain = COLOUR.sub("", RULES_80)
    assert on_a_terminal("rules", "parity-relative", width=80, NO_COLOR="1") == plain
    assert on_a_terminal("rules", "parity-relative", width=80, TERM="dumb") == plain
    assert piped("rules", "parity-relative", width=80) == plain


def test_rules_wrap_on_a_narrow_terminal_and_are_lines_in_a_pipe():
    narrow = on_a_terminal("rules", "parity-relative", "--variables", "parity", width=40, NO_COLOR="1")
    assert narrow.startswith(RULES_40)
    lines = piped("rules", "parity-relative", "--variables", "parity", width=40).splitlines()
    assert lines[0] == "done=0 ∧ done_left=1 ∧ parity=0 ∧ parity_left=1 ⟹ parity := 1"


SHOW_80 = """\
<program: 2 variables, 2 heads, 3 tokens>

tokens  0, 1, START
inputs  any length
output  parity
halts   where done=1

variables  values  start
parity     0..1    from the token: 1 for 1, otherwise 0
done       0..1    from the token: 1 for START, otherwise 0

heads        read    where       at distance
parity_left  parity  everywhere  -1
done_left    done    everywhere  -1

rules
    2  for parity
    1  for done
    4  resets of what heads have written
    0  traps

<model: 9 dims, 2 heads, MLP 7 wide, 59 parameters, float32>

inputs    any length
exact in  float32 and wider formats
layers    shared, until every position has halted
MLP       clipped ReLUs, 7 wide

residual stream  dimensions
parity           0..1
done             2..3
parity_left      5..6
done_left        7..8

matrices              shape  not zero
embeddings of tokens  3 × 9         9
parity_left: query    1 × 9         1
parity_left: key      1 × 9         1
parity_left: value    2 × 9         2
parity_left: output   9 × 2         2
done_left: query      1 × 9         1
done_left: key        1 × 9         1
done_left: value      2 × 9         2
done_left: output     9 × 2         2
MLP: W1               7 × 9        14
MLP: W2               9 × 7        10
read-out              2 × 9         2
"""


def test_show():
    assert piped("show", "parity-relative", width=80) == SHOW_80
    assert piped("show", "parity-relative", width=160) == SHOW_80
    colored = on_a_terminal("show", "parity-relative", width=80)
    assert COLOUR.sub("", colored) == SHOW_80
    assert "\x1b[1mvariables  values  start\x1b[0m" in colored


def test_show_keeps_to_the_width():
    for width in (60, 80, 160):
        printed = piped("show", "sort-unique", width=width)
        assert max(map(columns, printed.splitlines())) <= width
    assert "0 → {0, 32}, 1 → {0, 1, 32}" in printed


@pytest.fixture
def wide():
    """Tokens and a name in wide, combining and control characters."""
    tokens = ("日本", "e\N{COMBINING ACUTE ACCENT}", "\x1b[2J\n", "x")
    return program_spec(
        variables={"名前": var(4, input_init_fn=tokens.index), "done": var(2)},
        heads={"left": v_relative("done", -1)},
        ffn_fn=lambda z: z.__setitem__("done", 1),
        output_name="done",
        tokens=tokens,
        halt=halt_spec("done", 1),
    )


def test_wide_characters_line_up_and_control_characters_are_written_out(wide):
    table = run(wide, wide.tokens).trace.table()
    assert "\x1b" not in table
    assert r"2 \x1b[2J\n" in table
    lines = table.splitlines()
    assert {columns(line[: line.index(kind)]) for line, kind in ((lines[0], "start"),)} == {19}
    for line in lines[2:]:
        value = line.rstrip().split()
        assert columns(line.rstrip()) <= columns(lines[0].rstrip()) + 1, value
    rows = [line for line in lines if "名前" in line]
    assert {columns(row[: row.index("名前")]) for row in rows} == {13}


def test_a_very_narrow_terminal_cuts_names():
    program = program_spec(
        variables={"a_variable_with_a_long_name": var(2), "done": var(2)},
        heads={},
        ffn_fn=lambda z: z.__setitem__("done", 1),
        output_name="done",
        tokens=("a_token_with_a_long_name",),
        halt=halt_spec("done", 1),
    )
    table = run(program, program.tokens).trace.table(width=24)
    assert max(map(columns, table.splitlines())) <= 24
    assert "a_varia…" in table
    assert "a_variable_with_a_long_name" in run(program, program.tokens).trace.table(width=80)


def test_the_width_of_text():
    assert columns("abc") == 3
    assert columns("日本") == 4
    assert columns("e\N{COMBINING ACUTE ACCENT}") == 1
    assert columns("∧ ⟹ ∅") == 5
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert columns(pad("日本", 6)) == 6
    assert printable("a\tb\x1b[0m") == r"a\tb\x1b[0m"
    assert printable("e\N{COMBINING ACUTE ACCENT}") == "e\N{COMBINING ACUTE ACCENT}"
    assert wrap(["aa", "bb", "cccccccc"], 5, " ") == ["aa bb", " cccccccc"]
    assert paint("x", "bad", True) == "\x1b[1;31mx\x1b[0m"
    assert paint("x", "bad", False) == "x"


def test_traps_are_rules_that_say_why():
    def mlp(z):
        z["a"] = 1 // z["a"]

    program = program_spec(variables={"a": var(2)}, heads={}, ffn_fn=mlp, output_name="a", input_range=1)
    (line,) = implications(program.rules.traps)
    assert line.startswith("a=0 ⟹ ZeroDivisionError: integer division or modulo by zero (line ")
    wrapped = list(implications(program.rules.traps, width=40))
    assert wrapped[0] == "a=0"
    assert all(columns(line) <= 40 for line in wrapped)


def test_every_kind_of_thing_has_a_report():
    program = parity.relative()
    inputs = [parity.encode([1, 0])]
    model = alta.compile(program)
    things = [
        program,
        program.rules,
        run(program, inputs[0]),
        run(program, inputs[0]).trace,
        model,
        alta.verify(model),
        alta.coverage(program, inputs),
        alta.minimal(program, inputs),
        alta.predict(program, inputs, inputs),
    ]
    for thing in things:
        assert text(describe(thing)).count("\n") >= 2
    with pytest.raises(TypeError, match="no way to show a int"):
        describe(3)


CHECK_80 = """\
\x1b[32mok     \x1b[0m  2 variables, 2 heads, 5 tokens; inputs of any length
\x1b[32mok     \x1b[0m  7 rules for largest, done, and 6 resets
\x1b[32mok     \x1b[0m  halts where done is 1 at every position
\x1b[33mnote   \x1b[0m  1,006 of 1,500 inputs that were tried stop with an error
           '0': layer 1, position 0: the MLP reads 'done_left', which is
           UNDEFINED: its head reads no position
\x1b[32mok     \x1b[0m  a Transformer, exact in float32 for inputs of any length: <model: 13
         dims, 2 heads, MLP 13 wide, 103 parameters, float32>
"""


def test_check(tmp_path: Path):
    path = str(tmp_path / "largest.py")
    assert "next: alta check" in piped("new", path, width=80)
    assert on_a_terminal("check", path, width=80) == CHECK_80
    lines = COLOUR.sub("", CHECK_80).replace("\n           UNDEF", " UNDEF").replace("\n         dims", " dims")
    assert COLOUR.sub("", on_a_terminal("check", path, width=160)) == lines
    assert piped("check", path, width=80) == lines
