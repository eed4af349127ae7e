"""Loop programs: what a schedule makes of nests, as text, run by an interpreter."""
