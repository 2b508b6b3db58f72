"""Blueprints: component collectives on groups of ranks, which are not yet lowered to messages."""
