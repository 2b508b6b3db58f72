"""Choice among ways to compute a collective: candidates, and estimates of their costs."""
