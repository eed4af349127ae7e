"""Programs for the S2Train accelerator. Holds the hooks only; what they name is imported when it is used."""

__version__ = "0.1.0"
