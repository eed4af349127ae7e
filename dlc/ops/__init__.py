"""Which ops exist. Each is declared once, in one of these modules; the rest of the compiler derives what it needs."""
