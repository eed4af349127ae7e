"""A module for `torch.jit.script`, which reads source: annotations as values, nothing dynamic."""

from typing import Any

import torch


class Steps(torch.nn.Module):
    """A loop over steps, which keeps every second state, and a branch on its counter."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The states, joined."""
        states = [x]
        for k in range(4):
            x = torch.tanh(self.inner(x)) + x
            if k % 2 == 1:
                states.append(x * 2)
            else:
                x = x - 1
        return torch.cat(states, 1)
