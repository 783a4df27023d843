"""Which nodes a gang gets, and why it gets none: values in, values out, no clock and no client.

- `supply`: what nodes have, what pods ask of them, and the running account of what is left
- `topology`: the cluster's network as a tree, and by which labels it is known
- `nesting`: a mesh's blocks into that tree, so that the least traffic crosses its levels
- `queueing`: which gangs may start, and which give way

`solver` is first fit, for gangs that want nothing of the topology; `model` has the values that all of it speaks in.
"""
