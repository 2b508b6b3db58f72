"""Passes that assign the progress of communication to cores."""
