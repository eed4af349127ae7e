"""Training: `step` makes graphs of losses, optimizers and schedules, selected by spec text; `loop` runs programs.

    cross-entropy{smoothing=0.1}     adam{lr=1e-3}     cosine{steps=1000}

Nothing is imported here: each module is, where it is needed.
"""
