"""A program whose tokens and names try to be markup and script."""

from __future__ import annotations

import alta
from alta import MLPBuilder, program_spec, v_relative, var

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "]]>&lt;&amp;'\"`${data}$data",
    "\u2028\u2029\x00\x1b[31m\u202e",
    "\ud800",
)


def hostile() -> alta.Program:
    """Where the first token stands, its variable is set to 0."""
    variables = {name: var(2, input_init_fn=lambda token: token == HOSTILE[0]) for name in HOSTILE}
    heads = {f"head {name}": v_relative(name, -1) for name in HOSTILE}
    x = MLPBuilder(variables, heads)
    for here in x.get(HOSTILE[0]):
        if here == 1:
            x.set(HOSTILE[0], 0)
    return program_spec(variables=variables, heads=heads, rules=x.rules, output_name=HOSTILE[0], tokens=HOSTILE)
