"""Choose among ways to compute a collective: candidates, what closed forms say they cost."""
