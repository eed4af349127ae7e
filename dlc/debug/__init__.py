"""Where a wrong result, or a build that fails, comes from: searches that need nobody to watch them.

    states of a build → bisect → the step, its rule or its first wrong tensor
    graph of kernels  → divergence → the kernel whose C differs from what it says
    model and oracle  → reduce → the smallest model that shows the fault
    crash report      → repro → whether it still happens

Nothing is imported here: each module is, where it is needed.
"""
