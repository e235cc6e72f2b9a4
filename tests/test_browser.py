"""The explorer's pages in a real browser: what they show and do, held against the trace."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import PROGRAM, Chromium, Page
from hostile import HOSTILE, hostile

import alta
from alta.language.variables import format_value
from alta.programs import BUNDLED

pytestmark = pytest.mark.browser

SCREENSHOTS = Path(__file__).parents[1] / "build" / "screenshots"

INPUTS = {
    "parity-relative": "10110",
    "addition": "95+7",
    "scan": "walk around left thrice and look around right thrice",
}

VIEWS = {
    "parity-relative": "#step=4&variable=parity&position=2",
    "addition": "#step=4&variable=sum&position=4",
    "scan": "#step=61&variable=word&position=12",
}
"""States that make good pictures."""

TABLE = """
    [...document.querySelectorAll("#table tbody tr")].filter((row) => row.querySelector("td")).map((row) => [
      row.querySelector("th span").textContent,
      [...row.querySelectorAll("td")].map((cell) => [cell.firstChild.data, cell.classList.contains("changed")]),
    ])
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    assert PROGRAM is not None, "there is no Chromium; `make test-browser` installs it"
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@functools.cache
def explored(name: str) -> tuple[alta.Explorer, alta.Trace]:
    bundled = BUNDLED[name]
    program, inputs = bundled.build(), bundled.encode(INPUTS[name])
    page = alta.explore(program, inputs, bundled.max_layers, title=name, caption=INPUTS[name])
    return page, alta.run(program, inputs, bundled.max_layers).trace


def address(folder: Path, name: str) -> str:
    path = folder / f"{name}.html"
    explored(name)[0].save(path)
    return path.as_uri()


def shown(page: Page) -> dict[str, list[list[Any]]]:
    """For each variable, the text of each cell, and whether it is marked as changed."""
    return dict(page.evaluate(TABLE))


def expected(trace: alta.Trace, step: int) -> dict[str, list[list[Any]]]:
    states = [state for _, state in trace.states]
    state, before = states[step], states[max(0, step - 1)]
    return {
        name: [[format_value(now[name]), now[name] != then[name]] for now, then in zip(state, before, strict=True)]
        for name in trace.program.variables
        if not name.startswith("_")
    }


def cell(trace: alta.Trace, variable: str, position: int) -> str:
    """JavaScript for a cell of the table."""
    names = [name for name in trace.program.variables if not name.startswith("_")]
    names.sort(key=lambda name: name in trace.program.heads)
    rows = '[...document.querySelectorAll("#table tbody tr")].filter((row) => row.querySelector("td"))'
    return f'{rows}[{names.index(variable)}].querySelectorAll("td")[{position}]'


def text(page: Page, selector: str) -> str:
    return " ".join(page.evaluate(f"document.querySelector({selector!r}).innerText").split())


def button(name: str) -> str:
    return f'document.getElementById("{name}")'


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", INPUTS)
def test_pages_load_without_a_complaint_and_ask_for_nothing(browser, folder, name, dark):
    url = address(folder, name)
    trace = explored(name)[1]
    with browser.page(url + VIEWS[name], dark=dark) as page:
        assert shown(page) == expected(trace, int(VIEWS[name].partition("=")[2].partition("&")[0]))
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, background[4:-1].split(","))) < 200) == dark
        page.screenshot(SCREENSHOTS / f"{name}-{'dark' if dark else 'light'}.png")
        assert page.complaints == []
        assert page.requests == [url]
        page.click(button("theme"))
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background


@pytest.mark.parametrize("name", ["parity-relative", "addition"])
@pytest.mark.parametrize("way", ["keys", "arrows", "buttons", "slider"])
def test_every_step_shows_the_state_and_marks_what_has_changed(browser, folder, name, way):
    trace = explored(name)[1]
    last = len(trace.states) - 1
    with browser.page(address(folder, name)) as page:
        if way == "slider":
            page.evaluate('document.getElementById("slider").focus()')
        for step in range(last + 1):
            assert shown(page) == expected(trace, step)
            forward(page, way)
        assert shown(page) == expected(trace, last)
        for step in range(last, -1, -1):
            assert shown(page) == expected(trace, step)
            back(page, way)
        assert page.complaints == []


def forward(page: Page, way: str) -> None:
    if way == "buttons":
        page.click(button("forward"))
    else:
        page.press({"keys": "j", "arrows": "ArrowRight", "slider": "ArrowRight"}[way])


def back(page: Page, way: str) -> None:
    if way == "buttons":
        page.click(button("back"))
    else:
        page.press({"keys": "k", "arrows": "ArrowLeft", "slider": "ArrowLeft"}[way])


def test_scan_jumps_anywhere_and_stays_smooth(browser, folder):
    trace = explored("scan")[1]
    last = len(trace.states) - 1
    with browser.page(address(folder, "scan")) as page:
        assert page.evaluate('performance.getEntriesByName("alta-ready")[0].startTime') < 2000
        page.press("End")
        assert shown(page) == expected(trace, last)
        for step in (1, 2, 60, 61, 62, 150, last - 1, 3):
            page.evaluate(
                f'document.getElementById("slider").value = {step};'
                'document.getElementById("slider").dispatchEvent(new Event("input"))'
            )
            assert shown(page) == expected(trace, step)
        page.press("Home")
        assert shown(page) == expected(trace, 0)
        times = page.evaluate("""(async () => {
            const times = [];
            for (let step = 1; step <= 60; step++) {
                const start = performance.now();
                document.getElementById("forward").click();
                document.body.offsetHeight;
                times.push(performance.now() - start);
            }
            return times;
        })()""")
        assert statistics.median(times) < 100
        assert page.complaints == []


def test_playing_goes_to_the_end_and_stops(browser, folder):
    with browser.page(address(folder, "parity-relative")) as page:
        page.evaluate('document.getElementById("speed").value = "120"')
        page.click(button("play"))
        assert page.evaluate('document.getElementById("play").getAttribute("aria-label")') == "Pause"
        page.evaluate("""new Promise((done) => setInterval(
            () => document.getElementById("play").getAttribute("aria-label") === "Play" && done(), 20))""")
        assert text(page, "#step") == "Layer 5 of 5, MLP"
        assert shown(page) == expected(explored("parity-relative")[1], 10)


def test_a_chosen_value_is_explained_by_its_rule(browser, folder):
    trace = explored("parity-relative")[1]
    with browser.page(address(folder, "parity-relative") + "#step=4") as page:
        page.click(cell(trace, "parity", 2))
        said = text(page, "#cell")
        assert said.startswith("parity at position 2 0 1 Set in this step, by the rule")
        fired = [rule for rule in trace.layers[1].fired[2] if rule.output == "parity"]
        for constraint in fired[0].antecedent:
            assert f"{constraint.variable} = {constraint.value}" in said
        assert "⟹ parity := 1" in said
        assert "parity_left = 1read from position 1" in said
        marked = '[...document.querySelectorAll("td.marked")].map((cell) => [cell.dataset.mark, cell.cellIndex - 1])'
        assert page.evaluate(marked) == [["if", 2]] * 4
        listed = page.evaluate('[...document.querySelectorAll("#sublayer .fired li code")].map((c) => c.textContent)')
        assert sorted(listed) == sorted(str(rule) for rule in trace.layers[1].fired[2] if not rule.is_reset)
        resets = sum(rule.is_reset for fired in trace.layers[1].fired for rule in fired)
        assert f"{resets} resets of attention outputs." in text(page, "#sublayer")
        page.press("j")
        assert "Last set by the MLP of layer 2, by the rule" in text(page, "#cell")
        assert str(fired[0]) in text(page, "#cell")
        page.click('document.querySelector("#cell button.text")')
        assert text(page, "#step") == "Layer 2 of 5, MLP"
        assert page.evaluate(f"document.activeElement === {cell(trace, 'parity', 2)}")
        page.click(cell(trace, "done", 0))
        assert "Unchanged since the start, where it is given by the token, “START”." in text(page, "#cell")


def test_a_chosen_output_is_explained_by_what_its_head_read(browser, folder):
    trace = explored("addition")[1]
    with browser.page(address(folder, "addition") + "#step=3") as page:
        page.click(cell(trace, "a", 4))
        said = text(page, "#cell")
        assert "The head reads value where at_a = one, here 1." in said
        assert "It reads one position, and takes its value: position 2 5 5" in said
        arcs = 'document.querySelectorAll("#arcs path.strong").length'
        assert page.evaluate(arcs) == 1
        assert page.evaluate('document.querySelectorAll("#arcs path.faint").length') == 5
        marks = '[...document.querySelectorAll("td.marked")].map((cell) => [cell.dataset.mark, cell.cellIndex - 1])'
        assert sorted(page.evaluate(marks)) == [["k", 2], ["q", 4], ["v", 2]]
        assert "one-hot, decoded as 5" in said
        ends = """(() => {
            const path = document.querySelector("#arcs path.strong");
            const place = (point) => point.matrixTransform(path.getScreenCTM()).x;
            const within = (position) => {
                const header = document.querySelectorAll("#table thead th")[position + 1];
                const { left, right } = header.getBoundingClientRect();
                return (x) => x > left && x < right;
            };
            const ends = [path.getPointAtLength(0), path.getPointAtLength(path.getTotalLength())].map(place);
            return [within(2)(ends[0]), within(4)(ends[1])];
        })()"""
        assert page.evaluate(ends) == [True, True]
        page.click(cell(trace, "kind_right", 5))
        assert "It reads no position, so its output is undefined." in text(page, "#cell")
        assert page.evaluate(arcs) == 0
        page.press("j")
        assert "The MLP empties what heads have written" in text(page, "#cell")


def test_vectors_are_drawn_under_values(browser, folder):
    with browser.page(address(folder, "parity-relative")) as page:
        page.click(button("vectors"))
        strips = page.evaluate(
            '[...document.querySelectorAll("#table tbody:nth-of-type(1) tr:nth-child(2) td i")]'
            ".map((strip) => strip.style.backgroundImage)"
        )
        assert len(strips) == 6
        assert strips[0] != strips[1] == strips[3]
        assert page.complaints == []
        page.screenshot(SCREENSHOTS / "parity-relative-vectors.png")


def test_search_and_filters_choose_variables(browser, folder):
    trace = explored("addition")[1]
    rows = """[...document.querySelectorAll("#table tbody tr")]
        .filter((row) => row.querySelector("td") && row.offsetHeight)
        .map((row) => row.querySelector("th span").textContent)"""
    with browser.page(address(folder, "addition")) as page:
        page.press("/")
        for letter in "AT_A":
            page.call("Input.insertText", text=letter)
        assert page.evaluate(rows) == ["at_a", "at_a_right"]
        assert text(page, "#count") == "2 of 16 variables"
        page.press("Enter")
        assert page.evaluate("document.activeElement.closest('tr').querySelector('th span').textContent") == "at_a"
        page.evaluate('document.getElementById("search").value = ""')
        for which, step in (("run", 0), ("step", 0), ("step", 1), ("step", 2)):
            page.evaluate(
                f'go({step}); document.getElementById("filter").value = "{which}";'
                'document.getElementById("filter").dispatchEvent(new Event("change"))'
            )
            steps = range(len(trace.states)) if which == "run" else [step]
            changed = [
                name
                for name in expected(trace, 0)
                if any(mark for at in steps for _, mark in expected(trace, at)[name])
            ]
            assert page.evaluate(rows) == changed


def test_a_state_has_an_address(browser, folder):
    trace = explored("addition")[1]
    url = address(folder, "addition")
    with browser.page(url + "#step=3&variable=a&position=4") as page:
        assert text(page, "#step") == "Layer 2 of 4, attention"
        assert text(page, "#cell h2") == "a at position 4 7"
        page.press("j")
        page.click(cell(trace, "sum", 2))
        link = page.evaluate('document.getElementById("link").href')
        page.evaluate("new Promise((done) => setTimeout(done, 400))")
        assert page.evaluate("location.href") == link == url + "#step=4&variable=sum&position=2"
        page.evaluate('location.hash = "#step=99&variable=nobody&position=-1"')
        assert text(page, "#cell h2") == "sum at position 2 5"
        page.evaluate('location.hash = "#step=1&variable=b&position=0"')
        page.evaluate("new Promise((done) => setTimeout(done, 100))")
        assert text(page, "#cell h2") == "b at position 0 START"
        assert page.complaints == []


def test_an_address_brings_its_cell_into_view(browser, folder):
    trace = explored("scan")[1]
    with browser.page(address(folder, "scan") + "#step=1&variable=writing_left&position=40", height=700) as page:
        for variable, position in (("writing_left", 40), ("token", 0), ("action", 25)):
            page.evaluate(f'location.hash = "#step=1&variable={variable}&position={position}"')
            page.evaluate("new Promise((done) => setTimeout(done, 100))")
            on_top = f"""(() => {{
                const {{ x, y, width, height }} = {cell(trace, variable, position)}.getBoundingClientRect();
                return document.elementFromPoint(x + width / 2, y + height / 2) === {cell(trace, variable, position)};
            }})()"""
            assert page.evaluate(on_top), (variable, position)


def test_hostile_strings_show_as_text(browser, folder):
    path = folder / "hostile.html"
    alta.explore(hostile(), HOSTILE, 1, title=HOSTILE[0], caption=HOSTILE[1]).save(path)
    with browser.page(path.as_uri()) as page:
        for step in range(3):
            page.evaluate(f"go({step})")
            for variable in range(2 * len(HOSTILE)):
                page.evaluate(f"choose({variable}, 0)")
        assert page.evaluate("document.title") == " ".join(HOSTILE[0].split())
        assert page.evaluate('document.getElementById("title").textContent') == HOSTILE[0]
        assert page.evaluate('document.getElementById("caption").textContent') == HOSTILE[1]
        tokens = page.evaluate('[...document.querySelectorAll("#table thead th span")].map((e) => e.textContent)')
        assert tokens[:5] == list(HOSTILE[:5])
        assert list(shown(page))[:5] == list(HOSTILE[:5])
        assert page.evaluate('document.querySelectorAll("img, body b, iframe").length') == 0
        assert page.evaluate("document.scripts.length") == 2
        assert page.complaints == []
        assert page.requests == [path.as_uri()]
        page.screenshot(SCREENSHOTS / "hostile.png")


def test_a_stopped_run_says_why_and_where(browser, folder):
    program = alta.program_spec(
        variables={"n": alta.var(3, input_init_fn=lambda token: token)},
        heads={"left": alta.v_relative("n", -1)},
        ffn_fn=lambda z: z.__setitem__("n", z["left"]),
        output_name="n",
        input_range=3,
    )
    path = folder / "stopped.html"
    alta.explore(program, [1, 2], 3).save(path)
    with browser.page(path.as_uri()) as page:
        assert "The run stopped: layer 1, position 0: the MLP reads 'left'" in text(page, "#stopped")
        assert text(page, "#step") == "Layer 1 of 1, attention"
        assert text(page, "#cell").startswith("left at position 0 1 ? undefined")
        assert page.complaints == []


def test_an_empty_run_is_a_page_too(browser, folder):
    path = folder / "empty.html"
    alta.explore(BUNDLED["parity-relative"].build(), []).save(path)
    with browser.page(path.as_uri()) as page:
        for key in ("j", "k", "End", "Home", "/"):
            page.press(key)
        assert text(page, "#facts").startswith("0 positions")
        assert page.complaints == []


def test_the_table_is_used_from_the_keyboard(browser, folder):
    with browser.page(address(folder, "addition")) as page:
        tabbable = 'document.querySelectorAll("#table [tabindex=\\"0\\"]").length'
        assert page.evaluate(tabbable) == 1
        page.evaluate('document.querySelector("#table td[tabindex=\\"0\\"]").focus()')
        for key, at in (
            ("Home", "sum at position 0"),
            ("ArrowRight", "sum at position 1"),
            ("ArrowUp", "carry at position 1"),
            ("ArrowDown", "sum at position 1"),
            ("End", "sum at position 5"),
            ("ArrowRight", "sum at position 5"),
            ("ArrowLeft", "sum at position 4"),
        ):
            page.press(key)
            assert text(page, "#cell h2").startswith(at)
            assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
            assert page.evaluate(tabbable) == 1
        page.press("j")
        assert page.evaluate("document.activeElement.tagName") == "TD"
        assert text(page, "#live") == "Layer 1 of 4, attention. 36 values changed."


def test_everything_has_a_role_and_a_name(browser, folder):
    with browser.page(address(folder, "addition") + VIEWS["addition"]) as page:
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        named: dict[str, list[str]] = {}
        for node in nodes:
            if not node["ignored"]:
                named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
        for role in (
            "button",
            "slider",
            "combobox",
            "checkbox",
            "searchbox",
            "grid",
            "link",
            "columnheader",
            "heading",
        ):
            assert named[role], role
            assert all(named[role]), f"a {role} has no name: {named[role]}"
        assert len(named["gridcell"]) == 16 * 6
        assert "2, changed from 10" in named["gridcell"]
        assert {"main", "banner", "complementary"} <= set(named)
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.evaluate('document.querySelector("#slider").getAttribute("aria-valuetext")') == "Layer 2 of 4, MLP"


CONTRASTS = """(() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const over = (colors) => {
        canvas.clearRect(0, 0, 1, 1);
        for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = (rgb) => rgb.map((part) => part / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const parent = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !parent.checkVisibility()) continue;
        if (parent.closest("script, .unseen, :disabled")) continue;
        const behind = [];
        for (let at = parent; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
        const ground = light(over(behind));
        const text = light(over([...behind, getComputedStyle(parent).color]));
        const contrast = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        found.push([contrast, walker.currentNode.data.trim(), parent.outerHTML.slice(0, 80)]);
    }
    return found.sort((a, b) => a[0] - b[0]).slice(0, 5);
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("step", [0, 3, 4])
def test_texts_stand_out_from_their_background(browser, folder, dark, step):
    with browser.page(address(folder, "addition") + f"#step={step}&variable=sum&position=4", dark=dark) as page:
        assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []


def test_a_narrow_screen_scrolls_the_table_under_its_headers(browser, folder):
    with browser.page(address(folder, "scan") + VIEWS["scan"], width=375, height=800) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.evaluate('document.getElementById("scroller").scrollTo(300, 200)')
        offsets = """(() => {
            const scroller = document.getElementById("scroller").getBoundingClientRect();
            const name = document.querySelector("#table tbody tr:nth-child(12) th").getBoundingClientRect();
            const token = document.querySelectorAll("#table thead th")[9].getBoundingClientRect();
            return [name.left - scroller.left, token.top - scroller.top, name.width / scroller.width];
        })()"""
        left, top, share = page.evaluate(offsets)
        assert abs(left) <= 2
        assert top <= 80
        assert share < 0.45
        page.screenshot(SCREENSHOTS / "scan-narrow.png")


def test_a_notebook_shows_the_page_in_a_frame(browser, folder):
    path = folder / "notebook.html"
    output = explored("parity-relative")[0]._repr_html_()
    path.write_text(f"<!doctype html><title>a notebook</title>{output}", encoding="utf-8")
    with browser.page(path.as_uri()) as page:
        page.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        frame = Page(browser, page.events("Target.attachedToTarget")[0]["sessionId"])
        for domain in ("Runtime", "Log"):
            frame.call(f"{domain}.enable")
        frame.evaluate('document.getElementById("last").click()')
        assert shown(frame) == expected(explored("parity-relative")[1], 10)
        assert frame.complaints == []
        assert page.complaints == []
