"""How the ranks' updates come together."""
