"""Whether a kernel is right by itself: names, types, and accesses that stay inside their tensors."""
