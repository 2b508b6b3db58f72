"""From a spec to the program of a rank: who compiles it, and what runs on which core."""
