"""Fit of machines to published measurements, and predictions from the fit."""
