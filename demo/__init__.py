"""`make demo`: a training job on a real Kubernetes on this machine, a fault in the middle, and a verdict."""
