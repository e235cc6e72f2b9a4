"""What the README and the documentation show is what happens, and what they link to is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import alta
from alta.programs import BUNDLED

ROOT = Path(__file__).parents[1]
PAGES = sorted(str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")))
NEEDS_A_NETWORK = ("make ", "pip install ")


class Block(NamedTuple):
    """A fenced block, with the output that is shown below it."""

    language: str
    text: str
    shown: str | None


def blocks(page: str) -> list[Block]:
    """The fenced blocks. One without a language is what the one before it prints."""
    found: list[Block] = []
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE):
        if language:
            found.append(Block(language, text, None))
        else:
            assert found and found[-1].shown is None, f"output of nothing in {page}:\n{text}"
            found[-1] = found[-1]._replace(shown=text)
    return found


RUNNING = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", RUNNING)
def test_the_blocks_run_and_print_what_is_shown(page, tmp_path, monkeypatch, capsys):
    """One after another, in a folder of their own. A Python block that begins with a file's name is also written there,
    so that commands can be given it."""
    monkeypatch.chdir(tmp_path)
    alta_command(tmp_path / "bin")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    namespace: dict[str, object] = {}
    for language, text, shown in blocks(page):
        match language:
            case "python":
                if name := re.match(r"# (\w+\.py)\n", text):
                    Path(name[1]).write_text(text)
                exec(compile(text, page, "exec"), namespace)
                for module in [name for name in sys.modules if (tmp_path / f"{name}.py").exists()]:
                    del sys.modules[module]  # the next page may have another file of that name
                assert capsys.readouterr().out == (shown or "")
            case "sh" if not any(command in text for command in NEEDS_A_NETWORK):
                printed = shell(text)
                assert shown is None or printed == shown
            case _:
                assert shown is None, f"{page} shows the output of a block that no test runs:\n{text}"


def alta_command(folder: Path) -> None:
    """The command `alta`, of this code."""
    folder.mkdir()
    path = folder / "alta"
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from alta.cli import main; main()"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" {Path(alta.__file__).parents[1]} "$@"\n')
    path.chmod(0o755)


def shell(text: str) -> str:
    """What the commands print, of which none may fail."""
    environment = os.environ | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "-ec", text], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 0, f"{text}{done.stdout[-2000:]}"
    return done.stdout


def headings(page: Path) -> set[str]:
    """The anchors that a page's headings have."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'src(?:set)?="([^"]+)"', text)]:
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or anchor in headings(path), f"{page} links to {target}, where there is no such heading"


def test_the_front_page_links_to_every_page_once():
    linked = re.findall(r"\]\((\w+\.\w+)\)", (ROOT / "docs/index.md").read_text())
    pages = {path.name for path in (*ROOT.glob("docs/*.md"), *ROOT.glob("docs/*.rst"))}
    assert sorted(linked) == sorted(pages - {"index.md"})


def test_the_figures_in_the_comparison_are_those_of_this_code():
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|", (ROOT / "README.md").read_text(), re.MULTILINE))
    scan = BUNDLED["scan"].build()
    for row, name in {
        "rules of addition": "addition",
        "rules of SUBLEQ, for -16 to 16": "subleq",
        "rules of SCAN": "scan",
    }.items():
        assert rows[row] == f"{len(BUNDLED[name].build().rules):,}"
    assert rows["dimensions of SCAN"] == str(sum(len(variable.domain.values) for variable in scan.variables.values()))
    cases = json.loads((ROOT / "benchmarks/results/cpu.json").read_text())["cases"]
    whole = next(case for case in cases if case["case"] == "SCAN, all of it")
    seconds = whole["inputs"] * whole["seconds per input"]["numba"]
    assert rows["all of SCAN interpreted, on one core"] == f"{seconds:.1f} s"


def test_every_public_name_is_in_the_reference():
    text = (ROOT / "docs/api.rst").read_text()
    listed = re.findall(r"^\.\. (?:auto)?(?:function|class|exception|data):: alta\.(\w+)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(alta.__all__)
