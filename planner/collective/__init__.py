"""Collectives: operations, specified results, reference results and lower bounds."""
