"""Plans for unmodified programs in any language, by a library that is preloaded into them."""
