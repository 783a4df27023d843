"""A real Kubernetes on one machine, without Docker and without root."""
