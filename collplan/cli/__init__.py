"""One module per command, with a function `command`; it is imported when the command runs."""
