"""The trace explorer: a run in one HTML file, which needs nothing else and sends nothing anywhere.

The files in `page` are put together here. The run goes in as JSON, which is read as data alone, and everything in it
reaches the page as text; a Content-Security-Policy lets no other script run and no other address be asked.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from alta.analysis.agreement import Runnable, compare
from alta.compiler.compile import compile
from alta.compiler.layout import lay_out
from alta.errors import CompileError, EndlessError, ExecutionError, InputError, amount
from alta.interpreter.run import attention, run
from alta.interpreter.trace import Run
from alta.language.program import Program, Token
from alta.language.record import from_data
from alta.language.variables import format_value
from alta.show.coding import Residual, encode_trace

SCRIPTS = ("trace.js", "table.js", "detail.js", "explorer.js")

MOST_CELLS = 20_000_000
"""Positions by variables by layers that a page can hold in memory."""


@dataclass(frozen=True)
class Explorer:
    """A page to look at a run with. A notebook shows it; `save` writes it to a file.

    >>> alta.explore(program, ["START", "1", "0"])
    <explorer: 3 positions, 2 layers>
    """

    html: str = field(repr=False)
    positions: int
    layers: int

    def save(self, path: str | Path) -> None:
        """Writes the page to a file, which any browser opens.

        >>> alta.explore(program, ["START", "1", "0"]).save("trace.html")
        >>> from pathlib import Path
        >>> Path("trace.html").read_text(encoding="utf-8").splitlines()[0]
        '<!doctype html>'
        """
        Path(path).write_text(self.html, encoding="utf-8", newline="\n")

    def __repr__(self) -> str:
        return f"<explorer: {amount(self.positions, 'position')}, {amount(self.layers, 'layer')}>"

    def _repr_html_(self) -> str:
        return (
            '<iframe title="alta trace explorer" sandbox="allow-scripts" width="100%" height="720" '
            f'style="border: 0" srcdoc="{html.escape(self.html)}"></iframe>'
        )


def explore(
    program: Program | Runnable,
    inputs: Iterable[Token],
    max_layers: int | None = None,
    *,
    title: str = "",
    caption: str = "",
) -> Explorer:
    """A page that shows how a program, or a model, runs on an input: step by step through its layers, with the rule or
    the head behind each value, and what stands for it in the model.

    A program is compiled, if it can be; the model has to agree with the interpreter in every state. A run that traps,
    reads UNDEFINED or never halts is shown up to there. `title` and `caption` stand at the top of the page.

    >>> alta.explore(model, ["START", "1", "0"], title="parity").save("parity.html")
    >>> alta.explore(program, ["START", "1", "0"], max_layers=1)
    <explorer: 3 positions, 1 layer>
    """
    given = tuple(inputs) if isinstance(inputs, Iterable) else inputs
    model: Runnable | None
    if isinstance(program, Program):
        model, reason = _compiled(program, len(program.encode(given)))
    else:
        model, reason = program, ""
        program = from_data(model.weights.program)
        if not model.weights.shared:
            most = len(model.weights.layers)
            max_layers = most if max_layers is None else min(most, max_layers)
    result, stopped = _run_as_far_as_it_goes(program, model, given, max_layers)
    trace = result.trace
    size = len(trace.inputs) * len(program.variables) * (result.layers + 1)
    if size > MOST_CELLS:
        raise InputError(
            f"{len(trace.inputs)} positions, {len(program.variables)} variables and {result.layers} layers are "
            f"{size:,} values, but a page holds {MOST_CELLS:,}; give max_layers, or a shorter input"
        )
    attended = None
    if stopped is not None and not isinstance(stopped, EndlessError):
        attended = attention(trace.program, trace.states[-1][1])
    residual = None
    if model is not None:
        layers = result.layers + (attended is not None)
        residual = Residual(model.run(trace.inputs, layers, residual=True).residual, lay_out(trace.program))
    data = {
        "title": title or "Trace",
        "caption": caption,
        "halted": result.halted,
        "stopped": None if stopped is None else _stop_data(stopped),
        "outputs": list(map(format_value, result.outputs)),
        "model": {"reason": reason} if model is None else _model_data(model),
        **encode_trace(trace, attended, residual),
    }
    return Explorer(_page(data), len(trace.inputs), result.layers)


def _compiled(program: Program, length: int) -> tuple[Runnable | None, str]:
    try:
        return compile(program, max_length=max(length, 1)), ""
    except CompileError as error:
        return None, str(error)


def _run_as_far_as_it_goes(
    program: Program, model: Runnable | None, inputs: tuple[Token, ...], max_layers: int | None
) -> tuple[Run, ExecutionError | None]:
    """The layers before one that cannot be run, or, if none can stop it, those until a state comes back."""
    try:
        return _run(program, model, inputs, max_layers), None
    except EndlessError as endless:
        return _run(program, model, inputs, endless.layer), endless
    except ExecutionError as stopped:
        return _run(program, model, inputs, stopped.layer - 1), stopped


def _run(program: Program, model: Runnable | None, inputs: tuple[Token, ...], max_layers: int | None) -> Run:
    if model is None:
        return run(program, inputs, max_layers)
    return compare(model, inputs, max_layers=max_layers)


def _stop_data(stopped: ExecutionError) -> dict[str, Any]:
    return {"message": str(stopped), "position": stopped.position, "variable": stopped.variable}


def _model_data(model: Runnable) -> dict[str, Any]:
    weights = model.weights
    return {"dims": weights.dim, "parameters": weights.parameters, "format": weights.dtype}


def _page(data: dict[str, Any]) -> str:
    folder = files("alta.show") / "page"
    script = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = folder.joinpath("explorer.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {_fingerprint(script)}; style-src {_fingerprint(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    template = Template(folder.joinpath("explorer.html").read_text(encoding="utf-8"))
    return template.substitute(policy=policy, style=style, script=script, data=_inert(data))


def _fingerprint(text: str) -> str:
    """What a policy knows an inline script or style by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inert(data: dict[str, Any]) -> str:
    """JSON in ASCII, in which nothing can end the element that it stands in, or begin another."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
