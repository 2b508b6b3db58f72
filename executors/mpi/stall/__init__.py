"""Detection of missing and waiting ranks, and reports of the ranks for which they wait."""
