"""The server that agents report to. Kept apart from the passes: what agents say only ever reaches a board in memory."""
