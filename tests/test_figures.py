"""Figures: what they show, read back from what was drawn, and that nothing is cut off."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.patches import Rectangle

import alta
from alta import InputError, program_spec, run, var
from alta.programs import BUNDLED, parity
from alta.show import figures
from alta.show.figures.attention import pattern
from alta.show.figures.canvas import RED, inches, thinned

ONES = parity.encode([1, 0, 1])


def texts(figure) -> list[str]:
    """All text, in the order in which it was drawn."""
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return [text for text in found if text]


def inside(figure) -> bool:
    """Whether every text lies in the figure, none over its edge."""
    figure.canvas.draw()
    width, height = figure.get_size_inches() * figure.dpi
    every = [*figure.texts, *(text for axes in figure.axes for text in (*axes.texts, axes.title))]
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            every += [axis.label, *(tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high)]
    boxes = [text.get_window_extent() for text in every if text.get_text() and text.get_visible()]
    assert boxes
    return all(b.x0 >= -1 and b.y0 >= -1 and b.x1 <= width + 1 and b.y1 <= height + 1 for b in boxes)


def test_the_trace_shows_what_the_papers_figure_2_shows():
    """The values of 1 0 1 by sub-layer, and which of them the figure marks."""
    found = run(parity.absolute(3), [1, 0, 1])
    figure = figures.trace(found, variables=["parity", "done", "parity_left"])
    (axes,) = figure.axes
    cells = [text for text in axes.texts if text.get_ha() == "center" and text.get_va() == "center"]
    rows: dict[float, list[tuple[float, str, bool]]] = {}
    for text in cells:
        x, y = text.get_position()
        rows.setdefault(round(y, 3), []).append((x, text.get_text(), text.get_weight() == "bold"))
    shown = [
        "".join(f"{value}{'*' if bold else ' '}" for _, value, bold in sorted(rows[y])) for y in sorted(rows)[::-1]
    ]
    assert shown == [
        "1 1 1 1 1 ",
        "1 1 1 1 1 ",
        "∅ 1*∅ 1*∅ ",
        "0 0 1*1 1 ",
        "0 0 1*1 1 ",
        "∅ 1*∅ 1*∅ ",
        "1 1 1 1 0*",
        "0 0 0 0 1*",
        "∅ 0*∅ 1*∅ ",
    ]
    frames = [p for p in axes.patches if isinstance(p, Rectangle) and not p.get_fill() and p.get_linewidth() > 1]
    assert len(frames) == sum(row.count("*") for row in shown) + 2  # the outputs, one of which has changed
    assert inside(figure)


def test_a_cells_colour_is_its_value():
    figure = figures.trace(run(parity.absolute(3), [1, 0, 1]), variables=["position"], layers=[0])
    (axes,) = figure.axes
    colors = [patch.get_facecolor()[2] for patch in axes.patches if patch.get_fill()]
    assert colors == sorted(colors, reverse=True)
    assert len(set(colors)) == 3


def test_outputs_are_framed_in_red():
    from matplotlib.colors import to_rgba

    (axes,) = figures.trace(run(parity.relative(), ONES)).axes
    assert sum(patch.get_edgecolor() == to_rgba(RED) for patch in axes.patches) == len(ONES)


@pytest.mark.parametrize(("name", "text"), [("addition", "95+7"), ("sort-unique", "5 2 9")])
def test_nothing_is_cut_off(name, text):
    bundled = BUNDLED[name]
    program = bundled.build()
    found = run(program, bundled.encode(text))
    assert inside(figures.trace(found, positions=[0, 1]))
    assert inside(figures.attention(found))
    assert inside(figures.weights(alta.compile(program), parts=["embeddings", next(iter(program.heads)), "mlp"]))


def test_tokens_that_look_like_formulas_are_shown_as_they_are():
    tokens = ("$x^2$", "a_very_long_token_that_goes_on_and_on_and_on", "\x1b[2J", r"\frac{")
    program = program_spec(
        variables={"$v_1$": var(4, input_init_fn=tokens.index)},
        heads={},
        ffn_fn=lambda z: None,
        output_name="$v_1$",
        tokens=tokens,
    )
    figure = figures.trace(run(program, tokens, max_layers=1))
    shown = texts(figure)
    assert "0  $x^2$" in shown
    assert r"2  \x1b[2J" in shown
    assert "$v_1$" in shown
    assert inside(figure)
    assert inside(figures.weights(alta.compile(program)))


def test_attention_is_what_the_model_does():
    """Where a head reads something, the model's softmax gives it the same shares."""
    program = parity.by_sum(8)
    found = run(program, parity.encode([1, 0, 1, 1]), max_layers=1)
    model = alta.compile(program, max_length=8)
    z = model.embed(program.encode(found.trace.inputs))
    ((keys, _),) = model.context(0, z)
    shares = pattern(found.trace, "share", found.trace.start)
    np.testing.assert_allclose(shares, model.pattern(model.weights.layers[0].heads[0], z, keys), atol=1e-6)
    assert inside(figures.attention(found))


def test_attention_of_chosen_heads_and_layers():
    found = run(parity.relative(), ONES)
    figure = figures.attention(found, heads=["done_left"], layers=[2, 3])
    shown = texts(figure)
    assert "done_left" in shown
    assert "parity_left" not in shown
    assert [text for text in shown if text.startswith("layer")] == ["layer 2", "layer 3"]


def test_weights_are_those_of_the_paper():
    """Appendix A.2: matrices of the parity program by absolute positions, with their labels."""
    model = alta.compile(parity.absolute(3))
    figure = figures.weights(model, parts=["parity_left", "mlp"])
    shown = texts(figure)
    assert "parity_left: reads parity where position matches position_left" in shown
    assert "R1   parity=0 ∧ done=0 ∧ parity_left=1 ∧ done_left=1 ⟹ parity := 1" in shown
    assert "R3   done=0 ∧ done_left=1 ⟹ done := 1" in shown
    assert "R7   done_left=1 ⟹ done_left := ∅" in shown
    assert shown.count("position_left = 2") == 2  # once for each row of matrices
    assert shown.count("100") == 6  # the diagonals of query and key
    query = next(axes for axes in figure.axes if sum(text.get_text() == "100" for text in axes.texts) == 3)
    rows = [text.get_position() for text in query.texts if text.get_text() == "100"]
    assert all(x0 < x1 and y0 > y1 for (x0, y0), (x1, y1) in pairwise(rows))
    assert inside(figure)


def test_every_entry_of_a_small_matrix_is_written_out():
    model = alta.compile(parity.relative())
    figure = figures.weights(model, parts=["mlp"])
    hidden, last = model.weights.layers[0].mlp
    entries = [hidden.weight.values, last.weight.values, hidden.bias[hidden.bias != 0]]
    expected = sorted(f"{value:.4g}".replace("-", "−") for values in entries for value in values)
    numbers = [t.get_text() for axes in figure.axes[1:] for t in axes.texts if t.get_ha() == "center"]
    assert sorted(numbers) == expected


def test_a_hundred_labels_thin_out():
    assert list(thinned(5, 5, 6)) == [0, 1, 2, 3, 4]
    assert list(thinned(100, 2, 6))[:3] == [0, 10, 20]
    for number in (1, 7, 100, 5000):
        shown = thinned(number, 2, 6)
        assert len(shown) * 6 * 1.25 / 72 <= 2 + 0.11
    figure = figures.weights(alta.compile(BUNDLED["addition"].build()), parts=["mlp"])
    columns = [text for text in figure.axes[0].texts if text.get_text().startswith("R") and text.get_rotation() == 90]
    places = sorted({text.get_position()[0] for text in columns})
    assert 10 < len(places) < 100
    assert min(np.diff(places)) * 72 >= 6.5
    rows = {text.get_position()[1] * 72 for axes in figure.axes for text in axes.texts if text.get_ha() == "right"}
    assert all(abs(a - b) >= 6.5 or a == b for a in rows for b in rows)


def test_models_in_torch_have_the_same_figure(tmp_path):
    model = alta.compile(parity.relative())
    for name, one in (("numpy.svg", model), ("torch.svg", model.to_torch())):
        figures.save(figures.weights(one), tmp_path / name)
    assert (tmp_path / "numpy.svg").read_bytes() == (tmp_path / "torch.svg").read_bytes()


PANELS = {
    "one": {
        "length": {"original": dict.fromkeys(range(5, 9), (10, 10)), "minimal": {5: (10, 10), 6: (5, 10), 8: (0, 10)}},
        "ones": {"original": dict.fromkeys(range(3), (4, 4))},
    },
    "other": {"length": {"trained": {5: (9, 10), 6: (0, 0)}}},
}


def test_accuracy_draws_what_it_is_given():
    figure = figures.accuracy(PANELS, seen={"one": {"length": 6}})
    grid = np.array(figure.axes).reshape(2, 2)
    assert [axes.get_title() for axes in grid[0]] == ["one", "other"]
    assert [axes.get_xlabel() for axes in grid[:, 0]] == ["length", "ones"]
    lines = {line.get_label(): line for line in grid[0, 0].get_lines()}
    assert lines["minimal"].get_xydata().tolist() == [[5, 1], [6, 0.5], [8, 0]]
    assert lines["original"].get_xydata().tolist() == [[n, 1] for n in range(5, 9)]
    (trained,) = grid[0, 1].get_lines()
    assert trained.get_xydata().tolist() == [[5, 0.9]]  # a group without inputs has no accuracy
    assert trained.get_color() not in {line.get_color() for line in lines.values()}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["original", "minimal", "trained", "seen in training"]
    (shade,) = [patch for patch in grid[0, 0].patches if isinstance(patch, Rectangle)]
    assert shade.get_x() + shade.get_width() == 6.5
    assert inside(figure)


def test_groups_that_are_no_numbers_thin_out():
    many = {f"group {i}": (i, 100) for i in range(100)}
    figure = figures.accuracy({"program": {"split": {"minimal": many}}})
    labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert labels[:2] == ["group 0", "group 5"]
    assert inside(figure)


def test_predictions_are_drawn_as_they_are():
    program = parity.relative()
    found = alta.predict(program, [ONES], [ONES, parity.encode([1] * 5)], by=lambda tokens: (len(tokens), "x"))
    by_length = found.regrouped(lambda group: group[0])
    assert by_length.series["minimal"] == {4: (1, 1), 6: (1, 1)}
    assert found.regrouped(lambda group: group[1]).groups == {"x": (2, 2, 2)}
    assert by_length.groups == alta.predict(program, [ONES], [ONES, parity.encode([1] * 5)]).groups


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_equal_figures_make_equal_files(kind, tmp_path):
    for name in "ab":
        figures.save(figures.trace(run(parity.relative(), ONES)), tmp_path / f"{name}.{kind}")
    first, second = ((tmp_path / f"{name}.{kind}").read_bytes() for name in "ab")
    assert first == second
    start = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[kind]
    assert first.startswith(start)
    if kind == "svg":
        assert ElementTree.fromstring(first).tag.endswith("svg")


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.trace(run(parity.relative(), ONES), variables=["x"]), "there is no variable 'x' in this run"),
        (lambda: figures.trace(run(parity.relative(), ONES), layers=[9]), "there is no layer 9 in this run"),
        (lambda: figures.trace(run(parity.relative(), [])), "there is nothing to draw"),
        (lambda: figures.trace(run(parity.absolute(), [1] * 60)), "cannot be read (8,000 can); choose with variables"),
        (lambda: figures.attention(run(parity.relative(), ONES), heads=["x"]), "'x' is no head; heads: parity_left"),
        (lambda: figures.attention(run(parity.relative(), ONES), layers=[0]), "there is no layer 0 in this run"),
        (lambda: figures.attention(run(parity.absolute(), [1] * 99)), "patterns cannot be read (150 can)"),
        (lambda: figures.weights(alta.compile(parity.relative()), parts=["x"]), "parts: embeddings, parity_left"),
        (lambda: figures.weights(alta.compile(parity.relative()), layer=1), "there is no layer 1; the model holds 1"),
        (lambda: figures.accuracy({}), "there is nothing to draw"),
        (
            lambda: figures.accuracy({"p": {"x": {str(i): {1: (1, 1)} for i in range(9)}}}),
            "9 lines cannot be told apart",
        ),
        (
            lambda: figures.save(figures.accuracy(PANELS), "x.bmp"),
            "figures are saved as NAME.svg, NAME.pdf or NAME.png",
        ),
        (
            lambda: figures.save(figures.accuracy(PANELS), "no/such/folder.svg"),
            "'no/such/folder.svg' cannot be written",
        ),
    ],
)
def test_what_cannot_be_drawn(draw, message):
    with pytest.raises(InputError) as error:
        draw()
    assert message in str(error.value)


def test_pyplot_and_the_users_settings_are_left_alone():
    code = (
        "import alta, sys, matplotlib; from alta.show import figures; from alta.programs import parity\n"
        "matplotlib.rcParams['font.size'] = 30; before = matplotlib.rcParams.copy()\n"
        "figure = figures.trace(alta.run(parity.relative(), ['START']), layers=[0])\n"
        "assert matplotlib.rcParams.copy() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"figures need matplotlib: pip install 'alta\[plot\]'"):
        figures.trace(run(parity.relative(), ONES))


def test_importing_figures_does_not_load_matplotlib():
    code = "import alta.show.figures, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_width_of_labels_is_measured():
    assert inches(["iiii"], 10) < inches(["WWWW"], 10)
    assert inches(["x" * 10], 10, mono=True) == pytest.approx(10 * inches(["x"], 10, mono=True), rel=0.1)
    assert inches([], 10) == 0
