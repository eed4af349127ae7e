"""What `benchmarks/compilers.py` compiles, with what, and how it is run."""
