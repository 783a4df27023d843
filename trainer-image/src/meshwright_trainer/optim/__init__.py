"""What turns gradients into updates: rules over lists of local tensors, and norms of logical tensors."""
