"""Several images of a batch taken as one: a pass over instructions."""
