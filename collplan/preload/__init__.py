"""Plans for unmodified programs in any language, by a library preloaded into the programs."""
