"""The same clients and server with Flower between them; policy and ledger belong to the client's owner."""
