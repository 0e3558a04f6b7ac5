"""A training that was cut goes on where it was: its state on disk, without pickle, and whose it is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax import files
from lostwax.tensor_files import read_tensors, write_tensors

STATE, OWNER = "state.safetensors", "belongs_to.json"


class Checkpoint(NamedTuple):
    """A folder that belongs to one training, told in words."""

    folder: Path

    @classmethod
    def of(cls, folder: str | Path, owner: Mapping[str, str]) -> Checkpoint:
        """The checkpoint of this training, begun where the folder has none; an error where it is another's."""
        ours = files.named("WeakRecoNN", folder)
        if (ours / OWNER).is_file():
            theirs = _owner(ours / OWNER)
            differ = [name for name in {**theirs, **owner} if theirs.get(name) != owner.get(name)]
            if differ:
                name = differ[0]
                raise ValueError(
                    f"WeakRecoNN: checkpoint={str(folder)!r} belongs to another training: its {name} is "
                    f"{theirs.get(name)}, and here it is {owner.get(name)}"
                    f"{f' (and {len(differ) - 1} more differ)' if len(differ) > 1 else ''}. Name another folder, or "
                    "delete that one."
                )
        else:
            files.make_folder("WeakRecoNN", ours)
            files.write(ours / OWNER, json.dumps(dict(owner), indent=1) + "\n", source="WeakRecoNN")
        return cls(ours)

    def read(self, device: torch.device) -> dict[str, Tensor] | None:
        """What was written last; None where nothing was."""
        path = self.folder / STATE
        return read_tensors("WeakRecoNN", path, str(device)) if path.is_file() else None

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """All or nothing: a kill leaves what was there before; what cannot be written is a warning, and no more."""
        try:
            write_tensors(self.folder / STATE, tensors, source="WeakRecoNN")
        except OSError as error:
            warnings.warn(
                f"{error} Training goes on without this checkpoint; the next one is tried in time.",
                RuntimeWarning,
                stacklevel=2,
            )


def _owner(path: Path) -> dict[str, str]:
    """Whose checkpoint it is."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"WeakRecoNN: {path} is damaged ({error}): whose checkpoint this is cannot be told. Delete its folder."
        ) from error
    return {str(name): str(value) for name, value in held.items()} if isinstance(held, dict) else {}


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, "3.exp_avg" for the fourth parameter's first moment."""
    state = optimiser.state_dict()["state"]
    return {f"{number}.{name}": value for number, held in state.items() for name, value in held.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put it back."""
    state: dict[int, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        number, name = path.split(".")
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
