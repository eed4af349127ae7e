"""How fast programs are: repeated calls, other runtimes in turn with them, steps against the limits of the machine."""
