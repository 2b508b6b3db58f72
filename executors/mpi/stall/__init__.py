"""Detection of missing and waiting ranks, and reports of who waits for whom."""
