"""Messages inside a node, replaced by copies through memory that its ranks share."""
