"""The optimizer of PyTorch that a spec of dlc describes; LAMB, which PyTorch does not have, from the paper's lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

Kind = Callable[..., torch.optim.Optimizer]


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al. 2020, line by line, in the precision of the parameters; φ is the identity."""

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        foreach: bool = False,
    ) -> None:
        del foreach
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        del closure
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for x in group["params"]:
                g, kept = x.grad, self.state[x]
                if not kept:
                    kept |= {"t": 0, "m": torch.zeros_like(x), "v": torch.zeros_like(x)}
                kept["t"] += 1
                kept["m"] = b1 * kept["m"] + (1 - b1) * g
                kept["v"] = b2 * kept["v"] + (1 - b2) * g * g
                m, v = kept["m"] / (1 - b1 ** kept["t"]), kept["v"] / (1 - b2 ** kept["t"])
                u = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * x
                sizes = float(x.norm()), float(u.norm())
                x -= group["lr"] * (sizes[0] / sizes[1] if sizes[0] and sizes[1] else 1.0) * u


KINDS: dict[str, Kind] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "lamb": Lamb,
}
KEYS = {"initial": "initial_accumulator_value"}
"""Options whose names differ from torch's by more than the hyphen."""


def torch_options(text: str) -> dict[str, Any]:
    """What torch's class takes for a spec."""
    out: dict[str, Any] = {}
    for part in text.partition("{")[2].rstrip("}").split():
        key, _, value = part.partition("=")
        numbers = tuple(float(v) for v in value.split(",")) if value != "yes" else (True,)
        out[KEYS.get(key, key.replace("-", "_"))] = numbers if key == "betas" else numbers[0]
    return out


def torch_optimizer(text: str, module: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a spec, for all parameters of a module."""
    return KINDS[text.partition("{")[0]](module.parameters(), **torch_options(text))
