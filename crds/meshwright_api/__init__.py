"""meshwright_api."""
