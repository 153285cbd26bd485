"""Chooses a device for each model. This module collects the sizes of the models and devices; the program `parley place` computes the
placement."""
from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from parley.wire import Error

Model = Any  # a torch module; its bytes; {"bytes": …, "complexity": …}
Device = Any  # "cpu", "cuda:0", torch's device; {"name": …, "bytes": …, "kind": "cpu" or "gpu", "speed": …}


class ModelSizeEstimator:
    """Estimates the memory of a torch module: its parameters and buffers, times `size_multiplier` for gradients and the like."""

    def __init__(self, model: Any, size_multiplier: float = 2) -> None:
        self.model, self.size_multiplier = model, size_multiplier

    def estimate_bytes(self) -> float:
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return self.size_multiplier * sum(int(t.nelement()) * int(t.element_size()) for t in tensors)

    def estimate_size(self) -> float:
        """Returns the estimate in megabytes."""
        return self.estimate_bytes() / 1e6


class ModelAssigner:
    """Finds the placement with the lowest cost: models that exchange much data are near each other, the devices are loaded evenly, and no
    device gets more than its memory holds. The interface is Machin's. There are three differences (compute/verbs/placement.h): memory
    is a hard limit, the search is exact, and a weight means the same in every problem. size_match_weight, entropy_weight, iterations and
    update_rate are therefore accepted and ignored.

    models: torch modules, numbers of bytes, or mappings with "bytes" and "complexity" (default: the number of bytes). model_connection:
    maps a pair of indices of models to the amount of data that the two models exchange. devices: names of this machine's devices, whose
    free memory and load are looked up, or mappings with "name", "bytes", "kind" and "speed"; None: this machine's GPUs, or its CPU if it
    has none. program: Parley's command line program. max_steps: the limit of the search. Raises RuntimeError with the program's message
    if the models do not fit or an argument is invalid."""

    def __init__(self, models: Sequence[Model], model_connection: Mapping[tuple[int, int], float], devices: Sequence[Device] | None = None,
                 model_size_multiplier: float = 2, max_mem_ratio: float = 0.5, cpu_weight: float = 0, connection_weight: float = 2,
                 size_match_weight: float = 1e-2, complexity_match_weight: float = 4, entropy_weight: float = 1, iterations: int = 500,
                 update_rate: float = 0.01, gpu_gpu_distance: float = 1, cpu_gpu_distance: float = 10, move_models: bool = True, *,
                 program: str = "parley", max_steps: int | None = None, timeout: float = 60) -> None:
        some = list(_gpus() or ["cpu"]) if devices is None else list(devices)
        described = [_described(d, max_mem_ratio, cpu_weight) for d in some]
        cpus = [d.get("kind") == "cpu" for d in described]
        asked = {
            "models": [{"name": str(i), **_needs(m, model_size_multiplier)} for i, m in enumerate(models)],
            "devices": described,
            "connections": [{"between": [str(a), str(b)], "weight": w} for (a, b), w in model_connection.items()],
            "distances": [{"between": [described[k]["name"], d["name"]], "distance": cpu_gpu_distance if cpus[i] or cpus[k] else gpu_gpu_distance}
                          for i, d in enumerate(described) for k in range(i)],
            "connection_weight": connection_weight,
            "load_weight": complexity_match_weight,
        }
        self.placement: dict[str, Any] = _placed(asked, program, max_steps, timeout)  # the output of `parley place`, costs included
        names = [d["name"] for d in described]
        places = [names.index(self.placement["placement"][str(i)]) for i in range(len(models))]
        self._assignment = [names[p] if isinstance(some[p], Mapping) else some[p] for p in places]
        if move_models:
            for model, device in zip(models, self._assignment, strict=True):
                if hasattr(model, "to"):
                    model.to(device)

    @property
    def assignment(self) -> list[Any]:
        """The device of each model, as given in `devices`."""
        return list(self._assignment)


def _needs(model: Model, size_multiplier: float) -> dict[str, float]:
    if isinstance(model, Mapping):
        return dict(model)
    return {"bytes": ModelSizeEstimator(model, size_multiplier).estimate_bytes() if hasattr(model, "parameters") else model}


def _described(device: Device, max_mem_ratio: float, cpu_weight: float) -> dict[str, Any]:
    if isinstance(device, Mapping):
        return dict(device)
    name = str(device)
    if name == "cpu":
        return {"name": name, "kind": "cpu", "bytes": max_mem_ratio * _free_memory(), "speed": cpu_weight}
    gpus = _gpus()
    known = name if ":" in name else f"{name}:0"
    if known not in gpus:
        raise ValueError(f"this machine has no device '{name}', it must be one of {', '.join([*gpus, 'cpu'])}")
    free, load = gpus[known]
    return {"name": name, "bytes": max_mem_ratio * free, "speed": 1 - load}


def _free_memory() -> float:
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(1024.0 * int(line.split()[1]) for line in f if line.startswith("MemAvailable:"))


def _gpus() -> dict[str, tuple[float, float]]:
    """Returns each GPU's free bytes and load (0 to 1); an empty dict if nvidia-smi is missing or fails."""
    query = ["nvidia-smi", "--query-gpu=index,memory.free,utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    gpus = dict[str, tuple[float, float]]()
    for line in said.splitlines():
        index, free, load = (field.strip() for field in line.split(","))
        if free.isdigit():
            gpus[f"cuda:{index}"] = int(free) * 2.0 ** 20, int(load) / 100 if load.isdigit() else 0.0
    return gpus


def _placed(asked: dict[str, Any], program: str, max_steps: int | None, timeout: float) -> dict[str, Any]:
    path = shutil.which(program)
    if path is None:
        raise Error("NOT_FOUND", f"there is no program '{program}': put Parley's command line program into PATH, or pass its path as `program`")
    command = [path, "place", *([] if max_steps is None else ["--max-steps", str(max_steps)])]
    try:
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise Error("DEADLINE_EXCEEDED", f"no placement was found within {timeout:g} s: raise timeout, or limit the search with max_steps") from None
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"'{path}' ended with exit status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
