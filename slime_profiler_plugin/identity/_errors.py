"""What can be wrong with an identity."""


class IdentityError(ValueError):
    """The run, the attempt or the process's place in it cannot be told, or was told wrongly.

    The message names the setting or the file, and what would be accepted.
    """


class OutError(OSError):
    """The run cannot be written below `out`. The message names the folder."""
