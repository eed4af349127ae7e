"""Models of today's families with random weights, as their exporters write them, for benchmarks/model_zoo.py."""
