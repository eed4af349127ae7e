"""What everything else may use: types, messages, text, identity of code. Imports nothing of the rest."""
