"""Calibration: measure a machine and fit the parameters of the cost model."""
