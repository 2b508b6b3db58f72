"""Machines: nodes with their ranks, cores and lanes, and the costs of their links."""
