"""Trains a module on pictures of digits, in eager PyTorch and compiled by dlc beside it: python train.py --steps 60"""

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

DIGITS = Path(__file__).parents[1] / "digits"


def digits(part: str) -> tuple[Any, Any]:
    """Pictures f32[rows,64] and labels i64[rows]."""
    data = np.load(DIGITS / f"digits_{part}.npz")
    return torch.tensor(data["x"].reshape(-1, 64) / np.float32(16)), torch.tensor(data["y"].astype(np.int64))


def main() -> None:
    """Train, and say how many pictures are recognised that were not trained on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    asked = parser.parse_args()

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 10)
    )
    eager = copy.deepcopy(model)
    ways = [
        (forward, torch.optim.SGD(weights.parameters(), lr=0.5))
        for forward, weights in ((torch.compile(model, backend="dlc"), model), (eager, eager))
    ]
    pictures, labels = digits("train")
    for step in range(asked.steps):
        batch = torch.randint(len(labels), (64,))
        losses: list[float] = []
        for forward, optimizer in ways:
            loss = torch.nn.functional.cross_entropy(forward(pictures[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        if step % 20 == 0:
            print("step {}: loss {:.3f} by dlc, {:.3f} by eager PyTorch".format(step, *losses))
    pictures, labels = digits("test")
    with torch.no_grad():
        right = int((model(pictures).argmax(1) == labels).sum())
    print(f"{right} of {len(labels)} pictures that were not trained on are recognised")


if __name__ == "__main__":
    main()
