"""Bind a plan to a communicator and buffers, and see that all ranks bring the same."""
