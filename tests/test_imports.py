"""Who may import whom: data flows one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import alta

ROOT = Path(alta.__file__).parent
ALLOWED = {
    "errors": set(),
    "terminal": set(),
    "displayed": {"show"},
    "language": {"errors", "displayed"},
    "parallel": {"errors"},
    "whole": set(),
    "interpreter": {"errors", "terminal", "displayed", "language", "parallel"},
    "programs": {"errors", "language"},
    "model": {"errors", "displayed"},
    "compiler": {"errors", "language", "model"},
    "analysis": {"errors", "displayed", "language", "interpreter", "compiler", "model", "parallel", "whole"},
    "training": {"errors", "language", "interpreter", "compiler", "model", "analysis", "parallel", "whole"},
    "recipes": {"errors", "language", "programs", "training"},
    "show": {"errors", "terminal", "language", "interpreter", "compiler", "model", "analysis"},
    "__init__": {"errors", "language", "interpreter", "compiler", "model", "analysis", "parallel", "show"},
    "cli": {
        "errors",
        "terminal",
        "language",
        "interpreter",
        "compiler",
        "model",
        "analysis",
        "programs",
        "parallel",
        "show",
        "__init__",
        "training",
        "recipes",
    },
}
"""For each part of the package, the parts that it may import.

What can be shown in a notebook is below `show`, which knows how. So it inherits one method from `displayed`, which
imports `show` when it is called: that import is the one that goes up, and none is made at the top of `displayed`.
"""

STANDARD_ONLY = ("errors", "terminal", "language")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(str(node.module))
    return found


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(path):
    for name in imports(path):
        package, _, rest = name.partition(".")
        if package == "alta":
            target = rest.split(".")[0] or "__init__"
            assert target == part(path) or target in ALLOWED[part(path)], f"{path} imports {name}"
        elif part(path) in STANDARD_ONLY:
            assert package in sys.stdlib_module_names, f"{path} imports {name}"


def test_what_is_shown_imports_show_only_when_asked():
    tree = ast.parse((ROOT / "displayed.py").read_text())
    at_the_top = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert at_the_top == {"__future__"}
    assert "alta.show.notebook" in imports(ROOT / "displayed.py")


def test_importing_alta_loads_nothing_heavy():
    code = "import alta, sys; print(*sorted({'torch', 'typer', 'rich', 'numpy', 'numba'} & sys.modules.keys()))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert loaded == []


def test_files_are_named_for_something():
    names = {path.stem for path in (*ROOT.rglob("*.py"), *Path(__file__).parent.rglob("*.py"))}
    assert not names & {"utils", "util", "common", "misc", "helpers"}


def test_public_names():
    assert sorted(alta.__all__, key=lambda name: (name.upper() != name, name[0].islower(), name)) == alta.__all__
    assert all(hasattr(alta, name) for name in alta.__all__)


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "py.typed").exists()
