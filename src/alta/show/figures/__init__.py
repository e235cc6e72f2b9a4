"""Figures for papers and talks: each function gives a `matplotlib.figure.Figure`, and `save` writes it as SVG, PDF or
PNG. They need matplotlib: pip install 'alta[plot]'.

    from alta.show import figures

    figures.save(figures.trace(alta.run(program, inputs)), "trace.pdf")
"""

from alta.show.figures.accuracy import Groups, Panels, Series, accuracy
from alta.show.figures.attention import attention
from alta.show.figures.canvas import save
from alta.show.figures.trace import trace
from alta.show.figures.weights import weights

__all__ = ["Groups", "Panels", "Series", "accuracy", "attention", "save", "trace", "weights"]
