"""The simulator: a program run out of its memory, once or in steps of training, and the arithmetic of instructions."""
