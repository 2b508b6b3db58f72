"""Mapping: which rank plays which part of an algorithm, so that few bytes go far."""
