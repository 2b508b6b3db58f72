"""Reports: tables, plots and JSON for people."""
