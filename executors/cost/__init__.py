"""The price of a plan without a machine: simulation, critical path, report."""
