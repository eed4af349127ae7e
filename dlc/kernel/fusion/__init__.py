"""Kernels made of kernels: joined, inlined, tidied and taken apart."""
