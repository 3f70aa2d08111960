"""Settings of the cluster. A file that holds them may leave anything out, but may hold nothing unknown."""

from typing import Annotated, Final

import msgspec


class MpsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of MPS.

    Attributes:
        user_id: uid of the MPS daemons, which their clients must have too; never root's.
    """

    user_id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = msgspec.field(default=1000, name="userID")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """All settings, each with the default that holds without a file."""

    mps: MpsSettings = MpsSettings()


DEFAULTS: Final = Settings()
