"""Passes that join messages and that reuse the memory into which messages are received."""
