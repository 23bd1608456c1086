"""Ways to carry messages between the same clients and the same server; they contain no method."""
