"""The table of a trace."""

from __future__ import annotations

import re

from alta import numeric_var, program_spec, qkv, run, v_relative, var
from alta.programs import parity

FIGURE = """\
                      start  attn  mlp  attn  mlp
                             1     1    2     2
0 1  parity           1      1     1    1     1
     done             1      1     1    1     1
     parity_left      ∅      1*    ∅*   1*    ∅*
1 0  parity           0      0     1*   1     1
     done             0      0     1*   1     1
     parity_left      ∅      1*    ∅*   1*    ∅*
2 1  parity           1      1     1    1     0*
     done             0      0     0    0     1*
     parity_left      ∅      0*    ∅*   1*    ∅*"""
"""What the paper's Figure 2 shows of 1 0 1."""


def squeezed(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_the_table_shows_what_the_papers_figure_shows():
    trace = run(parity.absolute(8), [1, 0, 1]).trace
    table = trace.table(variables=("parity", "done", "parity_left"))
    assert squeezed(table) == squeezed(FIGURE)


def test_null_and_undefined_look_different():
    table = str(run(parity.relative(), parity.encode([1])).trace)
    assert "∅" in table
    assert "?" in table


def test_a_table_that_is_too_wide_goes_on_below():
    trace = run(parity.relative(), parity.encode([1, 0, 1, 1, 0, 1])).trace
    for width in (40, 60, 80):
        table = trace.table(width=width)
        assert max(map(len, table.splitlines())) <= width
        assert table.count("done_left") == 7 * (table.count("\n\n") + 1)
    assert "\n\n" not in trace.table()


def test_rows_and_columns_can_be_chosen():
    trace = run(parity.relative(), parity.encode([1, 0, 1])).trace
    assert squeezed(trace.table(variables=["done"], positions=[2], layers=[0, 2])) == [
        ["start", "attn", "mlp"],
        ["2", "2"],
        ["2", "0", "done", "0", "0", "1*"],
    ]


def test_colour_takes_the_place_of_stars():
    trace = run(parity.relative(), parity.encode([1, 0])).trace
    colored = trace.table(color=True)
    assert "*" not in colored
    plain = re.sub(r"\x1b\[[0-9;]*m", "", colored)
    assert squeezed(plain) == squeezed(trace.table().replace("*", ""))
    assert colored.count("\x1b[1;36m") == trace.table().count("*")


def test_means_are_shown_as_fractions():
    variables = {"n": numeric_var((0, 1), input_init_fn=lambda t: t), "one": var(1), "a": var(1)}
    heads = {"mean": qkv("one", "one", "n"), "left": v_relative("a", -1)}
    program = program_spec(variables=variables, heads=heads, ffn_fn=lambda z: None, output_name="a", input_range=2)
    assert "1/3" in str(run(program, [0, 0, 1], max_layers=1))


def test_everything_says_what_it_is_in_one_line():
    result = run(parity.relative(), parity.encode([1]))
    for thing in (result, result.trace, result.trace.program, result.trace.program.rules):
        assert "\n" not in repr(thing)
    assert repr(result) == "<run: outputs [0, 1] after 1 layer, halted>"
