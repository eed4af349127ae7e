"""Measured schedules: kernels of a program, candidates for each built and timed in turn, records of the fastest."""
