"""The explorer's page, read back by a reader of its own and held against the trace; in a browser, see test_browser."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_programs
from hostile import HOSTILE, hostile

import alta
from alta import (
    EndlessError,
    InputError,
    VerificationError,
    halt_spec,
    numeric_var,
    program_spec,
    qkv,
    set_var,
    v_relative,
    var,
)
from alta.language.variables import UNDEFINED, format_value
from alta.programs import BUNDLED, scan, scan_data


class Document(HTMLParser):
    """The elements of a page, and what is in its scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._inside = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append((tag, found))
        self._inside = (found.get("type") or tag) if tag in ("script", "style") else ""

    def handle_endtag(self, _: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data


def read(page: alta.Explorer) -> dict[str, Any]:
    return dict(json.loads(Document(page.html).texts["application/json"]))


def rows(first: list[int], changes: list[list[int]]) -> list[list[int]]:
    found = [list(first)]
    for pairs in changes:
        row = list(found[-1])
        place = 0
        for gap, new in zip(pairs[::2], pairs[1::2], strict=True):
            place += gap
            row[place] = new
        found.append(row)
    return found


def cells(data: dict[str, Any]) -> list[list[list[list[float]]]]:
    """Every cell: by step, variable and position, its value's number and its vector's entries."""
    found = []
    positions = len(data["inputs"])
    layers = rows(data["start"], data["layers"])
    for step in range(data["states"]):
        state = []
        for number, variable in enumerate(data["variables"]):
            if variable["start"] != "head":
                row = layers[step // 2]
            elif step % 2:
                row = layers[(step + 1) // 2]
            else:
                row = [0] * len(layers[0])
            state.append([variable["cells"][row[number * positions + i]] for i in range(positions)])
        found.append(state)
    return found


def texts(data: dict[str, Any]) -> list[dict[str, list[str]]]:
    variables = data["variables"]
    return [
        {v["name"]: [v["values"][int(cell[0])] for cell in row] for v, row in zip(variables, state, strict=True)}
        for state in cells(data)
    ]


def selected(program: alta.Program, head: alta.Head, state: Any) -> list[list[int]]:
    """What the language says that a head reads, pair by pair."""

    def reads(i: int, j: int) -> bool:
        query, key = state[i][head.query], state[j][head.key]
        matches = key in query if isinstance(query, frozenset) else key == query
        near = head.relative_positions is None or j - i in head.relative_positions
        return matches and near and (j <= i or not program.causal)

    return [[j for j in range(len(state)) if reads(i, j)] for i in range(len(state))]


def check_page(program: alta.Program, inputs: list[Any], max_layers: int | None, model: Any = None) -> None:
    trace = alta.run(program, inputs, max_layers).trace
    data = read(alta.explore(model or program, inputs, max_layers))
    assert data["inputs"] == [str(token) for token in trace.inputs]
    names = [variable["name"] for variable in data["variables"]]
    assert sorted(names) == sorted(name for name in program.variables if not name.startswith("_"))
    expected = [
        {name: [format_value(assignment[name]) for assignment in state] for name in names} for _, state in trace.states
    ]
    assert texts(data) == expected
    check_values(data, trace)
    check_rules(data, trace)
    check_reads(data, program, trace)


def check_values(data: dict[str, Any], trace: alta.Trace) -> None:
    """Values have the same number if and only if they are equal, which is how the page knows a change."""
    for variable, rows_of in zip(data["variables"], zip(*cells(data), strict=True), strict=True):
        seen: dict[Any, float] = {}
        for state, row in zip((state for _, state in trace.states), rows_of, strict=True):
            for assignment, cell in zip(state, row, strict=True):
                assert seen.setdefault(assignment[variable["name"]], cell[0]) == cell[0]
        assert len(set(seen.values())) == len(seen)


def check_rules(data: dict[str, Any], trace: alta.Trace) -> None:
    names = [variable["name"] for variable in data["variables"]]
    for pairs, layer in zip(data["fired"], trace.layers, strict=True):
        found: list[list[str]] = [[] for _ in trace.inputs]
        position = 0
        for gap, number in zip(pairs[::2], pairs[1::2], strict=True):
            position += gap
            rule = data["rules"][number]
            antecedent = " ∧ ".join(f"{names[variable]}={value}" for variable, value in rule["if"])
            found[position].append(f"{antecedent} ⟹ {names[rule['set']]} := {rule['to']}")
        assert found == [[str(rule) for rule in fired if not rule.is_reset] for fired in layer.fired]


def check_reads(data: dict[str, Any], program: alta.Program, trace: alta.Trace) -> None:
    positions = len(trace.inputs)
    layers = rows([0] * (len(program.heads) * positions), data["reads"])[1:]
    befores = [state for _, state in trace.states[:-1:2]]
    for row, state in zip(layers, befores, strict=True):
        for number, head in enumerate(program.heads.values()):
            stretches = [data["selections"][row[number * positions + i]] for i in range(positions)]
            found = [
                [j for low, high in zip(s[::2], s[1::2], strict=True) for j in range(low, high + 1)] for s in stretches
            ]
            assert found == selected(program, head, state)


CASES = [
    ("parity-absolute", "10110"),
    ("parity-relative", "10110"),
    ("parity-relative", ""),
    ("parity-sum", "101101"),
    ("parity-count", "1011"),
    ("addition", "95+7"),
    ("sort-unique", "5 2 9 0"),
    ("subleq", "3 4 -1 5 2"),
    ("scan-parser", "jump around left twice"),
    ("scan", "jump twice"),
    ("addition-decoder", "95+7"),
]


@pytest.mark.parametrize(("name", "text"), CASES)
def test_the_page_holds_the_trace(name, text):
    bundled = BUNDLED[name]
    check_page(bundled.build(), list(bundled.encode(text)), bundled.max_layers)


def test_the_page_holds_the_traces_of_random_programs():
    shown = 0
    for seed in range(150):
        generator = random.Random(seed)
        program = random_programs.program(seed)
        inputs = random_programs.inputs(generator, program)
        try:
            alta.run(program, inputs, 4)
        except alta.ExecutionError:
            continue
        shown += 1
        check_page(program, inputs, 4)
    assert shown > 50


@pytest.mark.parametrize(("name", "text"), CASES)
def test_the_page_holds_the_residual_stream(name, text):
    bundled = BUNDLED[name]
    program = bundled.build()
    inputs = bundled.encode(text)
    model = alta.compile(program, max_length=max(len(inputs), 1))
    residual = model.run(inputs, bundled.max_layers, residual=True).residual
    data = read(alta.explore(program, inputs, bundled.max_layers))
    for stream, state in zip(residual, cells(data), strict=True):
        seen = np.zeros_like(stream)
        for variable, row in zip(data["variables"], state, strict=True):
            for position, (_, *entries) in enumerate(row):
                for place, number in zip(entries[::2], entries[1::2], strict=True):
                    seen[position, variable["slice"][0] + int(place)] = number
        for name_, part in slices(data, program).items():
            if not name_.startswith("_"):
                assert np.array_equal(seen[:, part], stream[:, part])


def slices(data: dict[str, Any], program: alta.Program) -> dict[str, slice]:
    """Side by side, in the order of the program: a dimension a value or member, one for a number."""
    widths = {v["name"]: v["slice"][1] for v in data["variables"]}
    found, start = {}, 0
    for name in program.variables:
        width = widths.get(name, 1)
        found[name] = slice(start, start + width)
        start += width
    assert {v["name"]: v["slice"][0] for v in data["variables"]} == {name: found[name].start for name in widths}
    return found


def test_a_mixture_is_shown_as_the_model_has_it():
    program = BUNDLED["parity-relative"].build()
    data = read(alta.explore(program, ["START", "1", "0"]))
    names = [variable["name"] for variable in data["variables"]]
    value, *entries = cells(data)[1][names.index("done_left")][0]
    assert data["variables"][names.index("done_left")]["values"][int(value)] == str(UNDEFINED.value)
    assert entries == [0, pytest.approx(2 / 3), 1, pytest.approx(1 / 3)]


def test_a_models_page_is_the_programs(tmp_path):
    program = BUNDLED["addition"].build()
    inputs = BUNDLED["addition"].encode("95+7")
    model = alta.compile(program)
    model.save(tmp_path / "addition.safetensors")
    pages = [alta.explore(one, inputs) for one in (program, model, alta.load(tmp_path / "addition.safetensors"))]
    assert len({page.html for page in pages}) == 1
    unrolled = alta.explore(alta.compile(program, layers=2), inputs)
    assert unrolled.layers == 2


def test_a_torch_models_page_is_the_programs():
    pytest.importorskip("torch")
    model = alta.compile(BUNDLED["parity-relative"].build())
    assert alta.explore(model.to_torch(), ["START", "1"]).html == alta.explore(model, ["START", "1"]).html


def test_a_model_that_disagrees_is_refused():
    model = alta.compile(BUNDLED["parity-relative"].build())
    model.weights.layers[0].mlp[0].weight.values[0] = 0
    with pytest.raises(VerificationError, match="after mlp 2"):
        alta.explore(model, ["START", "1", "0"])


def test_a_program_without_a_transformer_says_why():
    values = (0.0, 1e-9, 1.0)
    program = program_spec(
        variables={"n": numeric_var(values, input_init_fn=values.__getitem__), "a": var(3)},
        heads={},
        ffn_fn=lambda z: z.__setitem__("a", values.index(z["n"])),
        output_name="a",
        input_range=3,
    )
    data = read(alta.explore(program, [0, 1, 2], 1))
    assert "too close to tell apart" in data["model"]["reason"]
    assert all(variable["slice"] is None for variable in data["variables"])
    assert texts(data)[2]["a"] == ["0", "1", "2"]


def test_sets_are_shown():
    program = program_spec(
        variables={
            "s": set_var(3, ({0, 2}, {1}), input_init_fn=({0, 2}, {1}).__getitem__),
            "k": var(3, input_init_fn=lambda t: t),
            "a": var(3),
        },
        heads={"h": qkv("s", "k", "k")},
        ffn_fn=lambda z: None,
        output_name="a",
        input_range=2,
    )
    check_page(program, [0, 1, 0], 1)
    assert texts(read(alta.explore(program, [0, 1], 1)))[0]["s"] == ["{0, 2}", "{1}"]


def stopping(end: str) -> alta.Program:
    """Counts to two, and then ends in this way."""

    def mlp(z):
        if z["n"] < 2:
            z["n"] += 1
        elif end == "trap":
            raise ValueError("two is enough")
        elif end == "undefined":
            z["n"] = z["left"]
        else:
            z["n"] = 1

    return program_spec(
        variables={"n": var(3), "done": var(2)},
        heads={"left": v_relative("n", -1)},
        ffn_fn=mlp,
        output_name="n",
        input_range=1,
        halt=halt_spec("done", 1),
    )


@pytest.mark.parametrize(("end", "states", "reason"), [("trap", 6, "two is enough"), ("undefined", 6, "UNDEFINED")])
def test_a_run_that_has_to_stop_is_shown_up_to_there(end, states, reason):
    page = alta.explore(stopping(end), [0, 0])
    data = read(page)
    assert reason in data["stopped"]["message"]
    assert (data["states"], data["halted"], page.layers) == (states, False, 2)
    shown = texts(data)
    assert [state["n"] for state in shown] == [["0", "0"]] * 2 + [["1", "1"]] * 2 + [["2", "2"]] * 2
    assert [state["left"] for state in shown[3:]] == [["?", "1"], ["∅", "∅"], ["?", "2"]]
    if end == "undefined":
        assert (data["stopped"]["position"], data["stopped"]["variable"]) == (0, "left")


def test_a_run_without_an_end_is_shown_until_it_repeats():
    program = stopping("endless")
    with pytest.raises(EndlessError) as found:
        alta.run(program, [0])
    page = alta.explore(program, [0])
    assert page.layers == found.value.layer
    assert "never halts" in read(page)["stopped"]["message"]


def test_hostile_strings_stay_data():
    page = alta.explore(hostile(), HOSTILE, 1, title=HOSTILE[0], caption=HOSTILE[1])
    clean = alta.explore(BUNDLED["parity-relative"].build(), ["START", "1"])
    document = Document(page.html)
    assert document.elements == Document(clean.html).elements
    assert document.texts["script"] == Document(clean.html).texts["script"]
    data = read(page)
    assert (data["inputs"], data["title"], data["caption"]) == (list(HOSTILE), HOSTILE[0], HOSTILE[1])
    assert not set(document.texts["application/json"]) & set("<>&\u2028\u2029")
    assert document.texts["application/json"].isascii()
    assert page.html.encode()


def test_a_page_may_load_and_run_nothing_else():
    document = Document(alta.explore(BUNDLED["parity-relative"].build(), ["START", "1"]).html)
    policy = next(a["content"] for _, a in document.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(document.texts[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert not any(set(attributes) & {"src", "srcset", "style", "onclick"} for _, attributes in document.elements)
    assert {a["href"] for _, a in document.elements if "href" in a} == {"#"}
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "fetch("):
        assert word not in document.texts["script"]
    assert re.findall(r"https?://[^\"]*", document.texts["script"]) == ["http://www.w3.org/2000/svg"]


def test_scan_fits_in_a_small_file():
    longest = max(scan_data.examples(), key=lambda example: len(example.actions) + len(example.command.split()) / 100)
    page = alta.explore(scan.scan(), scan.encode(longest.command))
    assert (page.positions, page.layers) == (50, 121)
    assert len(page.html.encode()) < 500_000


def test_what_no_page_can_hold_is_refused(monkeypatch):
    monkeypatch.setattr("alta.show.explorer.MOST_CELLS", 40)
    program = BUNDLED["parity-relative"].build()
    with pytest.raises(InputError, match="3 positions, 5 variables and 2 layers are 45 values.*give max_layers"):
        alta.explore(program, ["START", "1", "0"])
    assert alta.explore(program, ["START", "1", "0"], 1).layers == 1


def test_wrong_inputs_are_errors():
    program = BUNDLED["parity-relative"].build()
    with pytest.raises(InputError, match="'2' at position 1 is not a token"):
        alta.explore(program, ["START", "2"])
    with pytest.raises(InputError, match="inputs are a sequence of tokens"):
        alta.explore(program, 3)  # type: ignore[arg-type]


def test_a_page_says_what_it_is_and_saves_itself(tmp_path):
    page = alta.explore(BUNDLED["parity-relative"].build(), iter(["START", "1", "0"]))
    assert repr(page) == "<explorer: 3 positions, 2 layers>"
    page.save(tmp_path / "trace.html")
    assert (tmp_path / "trace.html").read_text(encoding="utf-8") == page.html
    frame = Document(page._repr_html_()).elements
    assert [tag for tag, _ in frame] == ["iframe"]
    assert (frame[0][1]["srcdoc"], frame[0][1]["sandbox"]) == (page.html, "allow-scripts")


def test_the_pages_files_come_with_the_package():
    folder = Path(alta.__file__).parent / "show" / "page"
    found = {path.name for path in folder.iterdir()}
    assert found == {"explorer.html", "explorer.css", "trace.js", "table.js", "detail.js", "explorer.js"}
    assert all(len(path.read_text().splitlines()) < 600 for path in folder.iterdir())
