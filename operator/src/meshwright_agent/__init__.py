"""Meshwright's agent: runs a pod's training processes and tells the operator how they fare.

It works in images that Meshwright has never seen, so it is one file made of Python's standard library alone, for
Python 3.9 and newer. `python -m meshwright_agent install PATH` writes that file.
"""
