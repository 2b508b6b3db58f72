"""Mapping of ranks to the positions of an algorithm, to keep traffic local."""
