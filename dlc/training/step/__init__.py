"""Graphs of training: losses, optimizers and schedules as ops, and the functions made of them."""
