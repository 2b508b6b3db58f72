"""See that ranks come and get on, and say who waits for whom where they don't."""
