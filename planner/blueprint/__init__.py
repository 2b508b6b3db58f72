"""Blueprints: component collectives on groups of ranks, before there are messages."""
