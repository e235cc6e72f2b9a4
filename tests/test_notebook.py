"""What notebooks show: well-formed HTML that says what the thing is, with all text escaped; and one-line reprs."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import alta
from alta import Constraint, MLPBuilder, Rule, RuleSet, program_spec, run, v_relative, var
from alta.analysis.check import check
from alta.analysis.optimum import optimum
from alta.programs import BUNDLED, parity
from alta.show.notebook import STYLE

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "</style></div>&amp;", "a\u2028\x00\x1b[2Jb")

VOID = {"br", "img", "hr", "input", "meta", "link"}


class Reader(HTMLParser):
    """The tags and the text of some HTML; fails where tags are not closed in order."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.cells: list[tuple[str, bool]] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert {name for name, _ in attributes} <= {"class", "scope"}
        if tag == "td":
            self.cells.append(("", "marked" in (dict(attributes).get("class") or "")))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1] != "style":
            self.text.append(data)
        if self._open[-1] == "td":
            self.cells[-1] = (self.cells[-1][0] + data, self.cells[-1][1])


@pytest.fixture(scope="module")
def things():
    program = parity.relative()
    inputs = [parity.encode([1, 0]), parity.encode([1, 1, 1])]
    found = run(program, inputs[0])
    model = alta.compile(program)
    return {
        "Program": program,
        "RuleSet": program.rules,
        "Trace": found.trace,
        "Run": found,
        "Model": model,
        "TorchModel": model.to_torch(),
        "Certificate": alta.verify(model),
        "Coverage": alta.coverage(program, inputs),
        "Minimal": alta.minimal(program, inputs),
        "Prediction": alta.predict(program, inputs, [parity.encode([1] * 4)]),
    }


SAYS = {
    "Program": ["<program: 2 variables, 2 heads, 3 tokens>", "from the token: 1 for START, otherwise 0", "done=1"],
    "RuleSet": ["done=0 ∧ done_left=1", "done := 1"],
    "Trace": ["<trace: 3 positions, 2 layers>", "parity_left", "0 START"],
    "Run": ["<run: outputs [0, 1, 1] after 2 layers, halted>", "attn 2"],
    "Model": ["<model: 9 dims, 2 heads", "MLP: W1", "7 × 9"],
    "TorchModel": ["<TorchModel: 9 dims", "MLP: W1"],
    "Certificate": ["certified: the model does what its program does", "7 rules in 7 units"],
    "Coverage": ["<coverage: 2 inputs, 7 of 7 rules fired>", "3 of 3 fired", "done := 1"],
    "Minimal": ["<minimal program: 7 of 7 rules>", "resets"],
    "Prediction": ["<prediction: right on 100.0% of 1 inputs; the original on 100.0%>", "accuracy", "100.0%"],
}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_it_shows_what_it_is(things, name):
    read = Reader(things[name]._repr_html_())
    text = "".join(read.text)
    assert set(read.tags) <= {"div", "style", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    for expected in SAYS[name]:
        assert expected in text


def test_a_trace_marks_what_has_changed():
    """The same cells as the table on a terminal marks with stars."""
    found = run(parity.relative(), parity.encode([1, 0, 1]))
    cells = Reader(found._repr_html_()).cells
    stars = found.trace.table().count("*")
    assert sum(marked for _, marked in cells) == stars
    rows = [cells[i : i + 2 + 7] for i in range(0, len(cells), 9)]
    assert [text for text, _ in rows[5]] == ["", "done", "0", "0", "1", "1", "1", "1", "1"]
    assert [marked for _, marked in rows[5]] == [False, False, False, False, True, False, False, False, False]


def hostile_program():
    names = {f"{HOSTILE[0]}{i}": var(4, input_init_fn=HOSTILE.index) for i in range(2)}
    return program_spec(
        variables=names,
        heads={HOSTILE[1]: v_relative(f"{HOSTILE[0]}0", -1)},
        ffn_fn=lambda z: z.__setitem__(f"{HOSTILE[0]}1", z[f"{HOSTILE[0]}0"]),
        output_name=f"{HOSTILE[0]}1",
        tokens=HOSTILE,
    )


def test_hostile_names_and_tokens_are_text():
    program = hostile_program()
    batch = [HOSTILE, HOSTILE[:1]]
    things = [
        program,
        program.rules,
        run(program, HOSTILE, max_layers=1),
        alta.compile(program),
        alta.coverage(program, batch, 1),
        alta.minimal(program, batch[1:], 1),
        alta.predict(program, batch[1:], batch, 1, by=lambda tokens: tokens[0]),
    ]
    for thing in things:
        shown = thing._repr_html_()
        read = Reader(shown)
        assert "script" not in read.tags
        assert "img" not in read.tags
        assert HOSTILE[0] in "".join(read.text)
        assert not any(ord(character) < 32 and character != "\n" for character in shown)


def test_long_ones_are_cut_and_say_so():
    scan = BUNDLED["scan"]
    program = scan.build()
    found = run(program, scan.encode("jump twice"))
    shown = found._repr_html_()
    assert len(shown) < 200_000
    text = "".join(Reader(shown).text)
    assert "more rows are not shown" in text
    assert f"{2 * found.layers + 1 - 25:,} more states are not shown" in text
    assert f"{len(program.rules.core) - 40:,} more rules are not shown" in "".join(
        Reader(program.rules._repr_html_()).text
    )
    assert "more matrices are not shown" not in "".join(Reader(alta.compile(parity.relative())._repr_html_()).text)
    assert len(alta.compile(program)._repr_html_()) < 100_000


def test_a_program_whose_function_cannot_become_rules_says_why():
    program = program_spec(variables={"a": var(2)}, heads={}, ffn_fn=lambda z: z["b"], output_name="a", input_range=2)
    assert "reads 'b', which is not a variable" in "".join(Reader(program._repr_html_()).text)


def test_colours_are_those_of_the_page():
    """Text and background are the page's own, dark or light; what marks a change is translucent, and bold as well."""
    assert "color: inherit" in STYLE
    assert "background: transparent" in STYLE
    assert "rgba(86, 180, 233, 0.28)" in STYLE
    assert "font-weight: bold; background" in STYLE


def test_every_public_object_says_what_it_is_in_one_short_line(things):
    program = BUNDLED["addition"].build()
    inputs = [BUNDLED["addition"].encode("95+7")]
    found = run(program, inputs[0])
    model = alta.compile(program)
    causal = parity.scratchpad()
    prompt = parity.encode_scratchpad([1, 0])
    builder = MLPBuilder({"a": var(2)}, {})
    rule = Rule("a", 0, 1, (Constraint("a", 0),))
    objects = {
        **{name: thing for name, thing in things.items() if name != "TorchModel"},
        "Assignment": found.trace.start[0],
        "BatchGeneration": alta.generate_batch(causal, [prompt], stop="END")[0],
        "BatchRun": alta.run_batch(program, inputs, fired=True, trace=True)[0],
        "Constraint": rule.antecedent[0],
        "Explorer": alta.explore(program, inputs[0]),
        "Generation": alta.generate(causal, prompt, stop="END"),
        "Halt": program.halt,
        "Head": program.heads["a"],
        "Layer": found.trace.layers[0],
        "MLPBuilder": builder,
        "ModelGeneration": alta.compile(causal).generate(prompt, stop="END"),
        "ModelRun": model.run(inputs[0], residual=True),
        "Rule": rule,
        "Trap": BUNDLED["subleq"].build().rules.traps[0],
        "Variable": parity.absolute().variables["position"],
        "coverage": alta.coverage(program, inputs),
        "check": check(program, inputs),
        "minimal": alta.minimal(program, inputs),
        "minimal_rules": alta.minimal_rules(RuleSet((rule,)), [{"a": 0}]),
        "program": program,
        "rules": program.rules,
        "run": found,
    }
    errors = {name for name in alta.__all__ if name.endswith("Error")}
    classes = {name for name in alta.__all__ if isinstance(getattr(alta, name), type)} - errors
    assert classes <= objects.keys()
    for name, thing in objects.items():
        assert "\n" not in repr(thing), name
        assert len(repr(thing)) <= 330, name
        assert " object at 0x" not in repr(thing), name
    assert repr(builder) == "<MLP builder: 0 rules, 0 traps so far>"
    assert repr(objects["Variable"]) == "<variable 'position': 0..255>"
    assert repr(objects["Certificate"]).startswith("<certificate: exact in float32 on inputs of any length; 7 rules")
    assert str(optimum((rule,), [{"a": 0}])).count("\n") < 3
