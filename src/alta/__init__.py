"""alta compiles small Python programs to the exact Transformers that run them.

The examples in its docstrings go on from these lines:

    >>> import alta
    >>> from alta.programs import parity
    >>> program = parity.relative()
    >>> model = alta.compile(program)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from alta.errors import (
    AltaError,
    CompileError,
    EndlessError,
    ExecutionError,
    InputError,
    LoweringError,
    ModelFileError,
    ProgramError,
    RuleError,
    TrapError,
    UndefinedError,
    VerificationError,
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

if TYPE_CHECKING:
    from alta.analysis.agreement import verify
    from alta.analysis.certificate import Certificate
    from alta.analysis.coverage import Coverage, coverage
    from alta.analysis.minimal import Minimal, Prediction, minimal, predict
    from alta.analysis.optimum import optimum
    from alta.analysis.rule_sets import minimal_rules
    from alta.compiler.compile import compile
    from alta.interpreter.batch import BatchGeneration, BatchRun, generate_batch, run_batch, run_stream
    from alta.model.forward import Model, load
    from alta.model.result import ModelGeneration, ModelRun
    from alta.show.explorer import Explorer, explore

__version__ = "0.1.0"

__all__ = [
    "NULL",
    "UNDEFINED",
    "AltaError",
    "Assignment",
    "BatchGeneration",
    "BatchRun",
    "Certificate",
    "CompileError",
    "Constraint",
    "Coverage",
    "EndlessError",
    "ExecutionError",
    "Explorer",
    "Generation",
    "Halt",
    "Head",
    "InputError",
    "Layer",
    "LoweringError",
    "MLPBuilder",
    "Minimal",
    "Model",
    "ModelFileError",
    "ModelGeneration",
    "ModelRun",
    "Prediction",
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
    "VerificationError",
    "compile",
    "coverage",
    "explore",
    "generate",
    "generate_batch",
    "halt_spec",
    "load",
    "minimal",
    "minimal_rules",
    "numeric_var",
    "numerical_var",
    "optimum",
    "predict",
    "program_spec",
    "qkv",
    "relative_v",
    "run",
    "run_batch",
    "run_stream",
    "set_var",
    "v_relative",
    "var",
    "verify",
]

_LATER = {
    "Certificate": "alta.analysis.certificate",
    "Model": "alta.model.forward",
    "ModelGeneration": "alta.model.result",
    "ModelRun": "alta.model.result",
    "BatchGeneration": "alta.interpreter.batch",
    "BatchRun": "alta.interpreter.batch",
    "generate_batch": "alta.interpreter.batch",
    "run_batch": "alta.interpreter.batch",
    "run_stream": "alta.interpreter.batch",
    "Coverage": "alta.analysis.coverage",
    "coverage": "alta.analysis.coverage",
    "Minimal": "alta.analysis.minimal",
    "Prediction": "alta.analysis.minimal",
    "minimal": "alta.analysis.minimal",
    "minimal_rules": "alta.analysis.rule_sets",
    "optimum": "alta.analysis.optimum",
    "predict": "alta.analysis.minimal",
    "compile": "alta.compiler.compile",
    "Explorer": "alta.show.explorer",
    "explore": "alta.show.explorer",
    "load": "alta.model.forward",
    "verify": "alta.analysis.agreement",
}
"""What needs NumPy is imported when it is first used, so that `import alta` stays quick."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'alta' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
