"""meshwright."""
