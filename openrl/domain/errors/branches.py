"""Who can put an error right. A leaf belongs to one branch."""


class OpenRLError(Exception):
    """The root of everything OpenRL raises on purpose."""


class CallerError(OpenRLError):
    """The request is wrong; asking again won't help."""

    servers_fault = False  #: True where asking again won't help although the caller did nothing wrong


class PassingError(OpenRLError):
    """Not now; time will help."""


class OperatorError(OpenRLError):
    """The installation is wrong; whoever runs it can help."""


class NotFoundError(CallerError):
    """A thing that is not there, or is another tenant's, which must look the same."""
