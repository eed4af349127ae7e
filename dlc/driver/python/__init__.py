"""The door from Python: models and functions compiled to callables, functions traced from numpy's calls, gradients."""
