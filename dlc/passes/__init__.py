"""Passes: pure functions from graph to graph or plan, one per file."""
