"""Functions that programs call: compilation, binding, and views of single ranks."""
