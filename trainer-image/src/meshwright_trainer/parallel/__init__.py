"""How one model definition is spread over ranks: one file per mode, applied from outside."""
