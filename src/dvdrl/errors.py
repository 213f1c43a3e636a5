"""The error that a user can act on: the command line prints its one line and exits with code 2."""


class DvdrlError(Exception):
    """Something in the input, the machine or a file is not as it must be; the message says what to do."""
