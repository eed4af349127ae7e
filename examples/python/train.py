"""Train a small network on pictures of digits, in a Python loop: python examples/python/train.py --steps 60"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import dlc

DIGITS = Path(__file__).parents[1] / "digits"


def scores(params: dict[str, Any], x: Any) -> Any:
    """64 grey values → 10 scores, by one hidden layer."""
    hidden = dlc.nn.relu(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params: dict[str, Any], x: Any, labels: Any) -> Any:
    """What is minimised."""
    return dlc.nn.cross_entropy(scores(params, x), labels)


step = dlc.value_and_grad(loss, wrt="params")
predict = dlc.kernel(scores)


def main() -> None:
    """Train, and say how many pictures are recognised that the network has never seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=0.5)
    asked = parser.parse_args()

    train, test = (np.load(DIGITS / f"digits_{part}.npz") for part in ("train", "test"))
    pictures, unseen = (part["x"].reshape(-1, 64).astype(np.float32) / 16 for part in (train, test))
    labels = train["y"].astype(np.int64)
    rng = np.random.default_rng(0)
    params: dict[str, Any] = {
        "w1": (rng.standard_normal((64, 32)) / 8).astype(np.float32),
        "b1": np.zeros(32, np.float32),
        "w2": (rng.standard_normal((32, 10)) / 6).astype(np.float32),
        "b2": np.zeros(10, np.float32),
    }
    for k in range(asked.steps):
        batch = rng.integers(0, len(labels), 64)
        value, gradients = step(params, pictures[batch], labels[batch])
        params = {name: w - np.float32(asked.rate) * gradients[name] for name, w in params.items()}
        if k % 20 == 0:
            print(f"step {k}: loss {value:.3f}")
    found = predict(params, unseen).argmax(axis=1)
    print(f"accuracy on {len(found)} images that were not trained on: {(found == test['y']).mean():.3f}")
    print(f"compiled programs: {len(step.compiled) + len(predict.compiled)}")


if __name__ == "__main__":
    main()
