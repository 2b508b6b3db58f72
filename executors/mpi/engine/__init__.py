"""The engine that runs the program of one rank, with its memory and its threads."""
