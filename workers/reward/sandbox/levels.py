"""How strong the walls around a child are."""

from enum import StrEnum


class Level(StrEnum):
    STRONG = "strong"  #: namespaces, Landlock, a filter of system calls, limits
    KERNEL = "kernel"  #: Landlock, a filter of system calls, limits: where namespaces are forbidden
    LIMITS = "limits"  #: limits only: where the kernel has nothing else to offer


STRONGEST_FIRST = tuple(Level)
