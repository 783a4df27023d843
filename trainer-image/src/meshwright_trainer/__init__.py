"""Meshwright's trainer: one model definition, parallelism applied from outside, resumes that keep the bits."""
