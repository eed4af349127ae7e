"""dlc.toml: its keys, its reader, and which files the user trusts to say what is run."""
