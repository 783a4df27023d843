"""What can end the demo early."""


class DemoError(Exception):
    """The demo cannot go on; its text says what was seen and where to look."""
