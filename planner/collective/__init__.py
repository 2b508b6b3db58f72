"""Collectives: operations, promised results, reference results and lower bounds."""
