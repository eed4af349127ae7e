"""Rules for ATen's operators, by family."""
