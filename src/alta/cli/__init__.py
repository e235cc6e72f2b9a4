"""The command line: a file for each group of commands, `app` for what they share, `source` for what they are given."""

from alta.cli import authoring, draw, execution, explore, learning, models, programs, training
from alta.cli.app import main

__all__ = ["authoring", "draw", "execution", "explore", "learning", "main", "models", "programs", "training"]
