"""What `dlc verify --gradients` does: derivatives in double precision, against differences and against PyTorch's.

    model → Question → values → Subject → Differences → Checked
                                       └→ autograd

Nothing is imported here: each module is, where it is needed.
"""
