"""Forms of writing, whatever is said: documents, numbers, tables, lists of hosts, models."""
