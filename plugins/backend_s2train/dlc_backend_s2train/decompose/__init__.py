"""Products that the array does not have, as several that it has."""
