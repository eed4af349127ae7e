"""What makes a training step of a graph: losses, optimizers and schedules as ops, selected by spec text.

    cross-entropy{smoothing=0.1}     adam{lr=1e-3}     cosine{steps=1000}

Nothing is imported here: each module is, where it is needed.
"""
