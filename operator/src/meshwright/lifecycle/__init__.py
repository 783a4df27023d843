"""Pure: what a job is, what it needs next, and why. Values in, values out; no client, no clock, no chance."""
