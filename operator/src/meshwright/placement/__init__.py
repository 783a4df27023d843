"""Which nodes a gang gets, and why it gets none: values in, values out, no clock and no client."""
