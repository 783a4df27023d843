"""Nodes of the dev cluster: pods as local processes, or as scripts that only pretend to run."""
