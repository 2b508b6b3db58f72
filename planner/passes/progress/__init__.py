"""Passes that place the progress of communication on cores."""
