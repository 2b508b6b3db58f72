"""Lowering: from a blueprint to messages and local steps, and from those to tasks."""
