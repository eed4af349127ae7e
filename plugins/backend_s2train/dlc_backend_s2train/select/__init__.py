"""From a graph of ops to a graph of instructions."""
