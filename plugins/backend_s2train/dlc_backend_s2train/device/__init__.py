"""The device as its host sees it: registers, operations, a run that is looked at, and what drives a chip."""
