"""Programs: collectives and computations on named buffers, which are planned together."""
