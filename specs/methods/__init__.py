"""Methods: decompositions, and the choices of algorithms, transports and passes by name."""
