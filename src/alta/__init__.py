"""alta compiles small Python programs to the exact Transformers that run them."""

from alta.errors import (
    AltaError,
    EndlessError,
    ExecutionError,
    InputError,
    LoweringError,
    ProgramError,
    RuleError,
    TrapError,
    UndefinedError,
)
from alta.interpreter.run import generate, run
from alta.interpreter.trace import Assignment, Generation, Layer, Run, Trace
from alta.language.builder import (
    MLPBuilder,
    halt_spec,
    numeric_var,
    numerical_var,
    program_spec,
    qkv,
    relative_v,
    set_var,
    v_relative,
    var,
)
from alta.language.program import Halt, Head, Program
from alta.language.rules import Constraint, Rule, RuleSet, Trap
from alta.language.variables import NULL, UNDEFINED, Variable

__version__ = "0.1.0"

__all__ = [
    "NULL",
    "UNDEFINED",
    "AltaError",
    "Assignment",
    "Constraint",
    "EndlessError",
    "ExecutionError",
    "Generation",
    "Halt",
    "Head",
    "InputError",
    "Layer",
    "LoweringError",
    "MLPBuilder",
    "Program",
    "ProgramError",
    "Rule",
    "RuleError",
    "RuleSet",
    "Run",
    "Trace",
    "Trap",
    "TrapError",
    "UndefinedError",
    "Variable",
    "generate",
    "halt_spec",
    "numeric_var",
    "numerical_var",
    "program_spec",
    "qkv",
    "relative_v",
    "run",
    "set_var",
    "v_relative",
    "var",
]
