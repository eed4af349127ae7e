"""The loop around a training program: data, epochs, metrics, checkpoints and curves."""
