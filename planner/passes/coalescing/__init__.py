"""Passes that join messages and reuse the blocks that receive them."""
