"""Idioms: the groups of nodes that exporters write for layers of networks, as functions that extend a model.

`table.py` has all of them and draws models of them; `weaver.py` is what they are written with.
"""
