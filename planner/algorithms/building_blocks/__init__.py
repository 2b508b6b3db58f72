"""Rounds that several algorithms have in common."""
