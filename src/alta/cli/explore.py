"""`alta explore`: a run as a page, to look at in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from alta.cli.app import PICTURES, JsonOption, LayersOption, ProgramArgument, app, print_json
from alta.cli.source import Source
from alta.errors import InputError, amount
from alta.show.explorer import explore

PAGE_SUFFIX = ".html"


@app.command(
    "explore",
    rich_help_panel=PICTURES,
    epilog="Examples: [bold]alta explore addition 95+7 -o trace.html --open[/]; "
    "[bold]alta explore scan 'jump around left twice' -o scan.html[/]; "
    "[bold]alta explore my.safetensors '1 0 1' -o mine.html[/]",
)
def explore_run(
    program: ProgramArgument,
    text: Annotated[str, typer.Argument(metavar="INPUT", help="The input: tokens, with or without spaces.")],
    output: Annotated[Path, typer.Option("--output", "-o", help=f"The file to write: NAME{PAGE_SUFFIX}")],
    max_layers: LayersOption = None,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a page that shows a run step by step.

    For every value it tells the rule that set it or the positions that its head read, and what stands for it in the
    Transformer. The page is one file, and needs no network.
    """
    if output.suffix != PAGE_SUFFIX:
        raise InputError(f"a page is saved as NAME{PAGE_SUFFIX}; got {str(output)!r}")
    source = Source(program)
    page = explore(
        source.model or source.program,
        source.encode(text),
        source.layers(max_layers),
        title=Path(program).name,
        caption=text,
    )
    try:
        page.save(output)
    except OSError as error:
        raise InputError(f"{str(output)!r} cannot be written: {error.strerror}") from None
    size = output.stat().st_size
    if as_json:
        print_json({"file": str(output), "bytes": size, "positions": page.positions, "layers": page.layers})
    else:
        print(
            f"{amount(page.positions, 'position')}, {amount(page.layers, 'layer')}\nsaved to {output}, {size:,} bytes"
        )
    if browse:
        webbrowser.open(output.resolve().as_uri())
