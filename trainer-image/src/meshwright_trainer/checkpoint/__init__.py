"""Checkpoints: pieces of logical tensors in files, committed by a manifest, fenced by attempt."""
