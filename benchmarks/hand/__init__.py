"""Kernels of the kernel language beside C by hand and torch: what `benchmarks/kernels_by_hand.py` measures."""
