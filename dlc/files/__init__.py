"""Files: hashed, locked, staged, written whole, and arrays read from them without trust."""
