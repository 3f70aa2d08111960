"""The answer to the review of an object of ours: why it is refused, or what its author should know."""

import msgspec


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said of a quota or a policy that somebody writes.

    Attributes:
        faults: why it is refused; empty if it is not.
        warnings: what its author should know.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
