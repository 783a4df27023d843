"""The cluster's network as a tree, and by which labels it is known."""
