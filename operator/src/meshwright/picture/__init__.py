"""The cluster as people see it: the tree with what is free, and where a job's ranks are in it. Values in, text out."""
