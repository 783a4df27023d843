"""Faults of other systems, put into ours on purpose: the tests that claim we do not have them must go red."""
