"""Where a run stands, in one safetensors file that is always whole: parameters, optimizer, and the step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from alta.errors import TrainingError
from alta.whole import whole

FORMAT = "alta-checkpoint 1"


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Writes tensors and facts; a kill at any moment leaves the old file or the new one."""
    held = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    with whole(path) as part:
        save_file(held, part, {"format": FORMAT, "facts": json.dumps(facts)})
        with part.open("rb") as written:
            os.fsync(written.fileno())


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save` has written."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise TrainingError(f"{str(path)!r} is no checkpoint of alta, or of another version")
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["facts"])  # noqa: SIM118
    except FileNotFoundError:
        raise TrainingError(f"there is no checkpoint {str(path)!r}; train first") from None
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        if isinstance(error, TrainingError):
            raise
        raise TrainingError(f"{str(path)!r} cannot be read: {error}") from None


def tensors_of(module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Tensor]:
    """The parameters of a module, and what its optimizer keeps of each, by name: the tensors themselves."""
    found: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        found[f"parameter.{name}"] = parameter
        for key, value in ({} if optimizer is None else optimizer.state[parameter]).items():
            found[f"optimizer.{key}.{name}"] = value
    return found


def restore(tensors: Mapping[str, Tensor], saved: Mapping[str, Tensor], path: Path) -> None:
    """Puts saved values into tensors, in place, so that a captured graph goes on with them."""
    if tensors.keys() - saved.keys() or any(saved[name].shape != tensors[name].shape for name in tensors):
        raise TrainingError(f"{str(path)!r} belongs to a model of another shape; take another directory")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(saved[name])
