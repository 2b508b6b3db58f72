"""Plans under unchanged programs in any language, by a library that is preloaded into them."""
