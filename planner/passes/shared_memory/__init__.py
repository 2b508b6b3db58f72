"""Messages inside a node as copies through memory its ranks share."""
