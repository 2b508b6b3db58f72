"""Launching of ranks: launchers, jobs, batch systems, and diagnosis of the installation."""
