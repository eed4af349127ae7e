"""What a plugin implements and is given: frontends, backends, passes, rules, programs. dlc/__init__.py exports it."""
