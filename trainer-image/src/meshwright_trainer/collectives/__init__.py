"""Collectives that torch does not have, and a ledger of what all of them send."""
