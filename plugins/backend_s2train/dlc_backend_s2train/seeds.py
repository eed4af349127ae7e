"""Seeds made of seeds: what draws random numbers beside others has its own."""

from __future__ import annotations

from typing import Final

SEEDS: Final = 1 << 53
"""Hyper-parameters are numbers of fp64 while they are attributes."""
_WORDS = 1 << 64
_GOLDEN = 0x9E3779B97F4A7C15


def mixed(seed: int, stream: int) -> int:
    """A seed for one of several streams: SplitMix64 (Steele, Lea, Flood 2014), number `stream` of what it draws."""
    word = (seed + (stream + 1) * _GOLDEN) % _WORDS
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % _WORDS
    return (word ^ word >> 31) % SEEDS
