"""Which gangs may start: the queue, whole gangs that give way, and quotas."""
