"""How classes of nests become fast loops: element-wise and movement, reductions, contractions.

Nothing is imported here: what reads a kernel needs few of the modules, and what finds a build in the cache none.
"""
