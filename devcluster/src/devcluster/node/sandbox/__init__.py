"""The program between this one and a container: makes its namespaces, keeps its log, ends what it leaves.

Only the standard library, and little of it, is imported here: it starts once per container.
"""
