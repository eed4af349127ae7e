"""Integer systems: affine equations and inequalities over axes, solved exactly (Smith form, Fourier-Motzkin)."""
