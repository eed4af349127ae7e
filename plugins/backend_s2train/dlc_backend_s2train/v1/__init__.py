"""Version 1: the published compiler's words, which of our instructions they say, its order and count of memory."""
