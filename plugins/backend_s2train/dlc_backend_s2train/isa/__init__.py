"""The instruction set: which instructions there are, their words of both versions, and their text."""
