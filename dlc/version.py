"""The version of dlc."""

__version__ = "0.1.0"
