"""What the published compiler does: its words for our instructions, its order, its count of memory."""
