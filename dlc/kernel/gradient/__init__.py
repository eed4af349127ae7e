"""Derivatives of kernels: the adjoint nests, and scatters turned into gathers."""
