"""Messages over shared links: the events of their flows, and their max-min fair rates."""
