"""Programs of single ranks: their compilation by all ranks together, and their cores."""
