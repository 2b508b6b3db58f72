"""Tools that make plans of other plans, for passes, the compiler and the proof."""
