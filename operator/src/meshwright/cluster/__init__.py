"""Effects: the API server, the watches and their caches, the lease, events. Only here is a client known."""
