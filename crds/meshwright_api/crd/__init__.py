"""Turns the types into what an API server installs: the CustomResourceDefinition and its admission policies."""
