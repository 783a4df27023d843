"""Nests a mesh's blocks into the topology so that the least traffic crosses its levels, and says why it cannot."""
