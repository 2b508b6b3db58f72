"""Own functions of the package: compilation, binding, and views of single ranks."""
