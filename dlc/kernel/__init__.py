"""How an op computes: scalar expressions, nests of loops over them, and everything derived from a nest."""
