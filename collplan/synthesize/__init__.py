"""A search for optimal schedules on small machines, by an exact solver."""
