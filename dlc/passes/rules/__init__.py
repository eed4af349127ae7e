"""The equations that `simplify` applies, by theme. Every module ends with its table; order decides who is first."""
