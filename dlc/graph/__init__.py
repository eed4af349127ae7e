"""What a model is: an immutable graph of ops, where an op instance is its own node, value and pattern."""
