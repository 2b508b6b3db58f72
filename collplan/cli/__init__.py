"""One module a command; each has `command`, imported only when it runs."""
