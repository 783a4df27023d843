"""From a job and its place to the objects on the API server: values in, manifests out, no clock and no client."""
