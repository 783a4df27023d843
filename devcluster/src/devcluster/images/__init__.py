"""The images of the operator and the trainer, built here from their Dockerfiles: no registry, no daemon, as root."""

from devcluster.images.build import Images
from devcluster.images.preload import preload, provide
from devcluster.images.requirements import obstacle

__all__ = ["Images", "obstacle", "preload", "provide"]
