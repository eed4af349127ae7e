"""One module per command, imported when it runs."""
