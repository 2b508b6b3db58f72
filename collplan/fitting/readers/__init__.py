"""Readers of measurements, with a file per format."""
