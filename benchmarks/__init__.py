"""Measurements, each with its seed and what it is compared with."""
