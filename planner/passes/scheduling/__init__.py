"""Passes that order tasks, and the task graph with each message as one node."""
