"""What can go wrong with a sandbox, in words for the person who started it."""


class SandboxError(Exception):
    """The sandbox cannot do what was asked. The message says what is missing and the way out; no traceback is needed."""
