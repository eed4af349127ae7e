"""Plugins: the hooks, how plugins are found and kept apart, and the registry of all that they offer."""
