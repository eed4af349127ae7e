"""`Level`: how far a model has come on its way to a program."""

from typing import Literal

Level = Literal["ops", "kernels", "plan"]
"""What a state is: a graph of named ops, a graph of kernel calls, or an ordered and placed plan."""
