"""Settings of the cluster. A file that holds them may leave anything out, but may hold nothing unknown."""

from typing import Annotated, Final

import msgspec


class MpsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of MPS.

    Attributes:
        user_id: uid of the MPS daemons, which their clients must have too; never root's.
    """

    user_id: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = msgspec.field(default=1000, name="userID")


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of quota.

    Attributes:
        gpu_memory_gb: GB that a whole GPU counts as `nos.nebuly.com/gpu-memory`.
        shared_replicas: parts of a time-sliced GPU where no label of the node says how many.
        hold_s: seconds after which a waiting pod that could ever run holds its place.
        max_grace_s: the longest that an evicted pod may take to end, in seconds.
    """

    gpu_memory_gb: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = msgspec.field(default=32, name="gpuMemoryGB")
    shared_replicas: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4
    hold_s: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(default=300, name="holdSeconds")
    max_grace_s: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(default=600, name="maxGraceSeconds")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """All settings, each with the default that holds without a file."""

    mps: MpsSettings = MpsSettings()
    quota: QuotaSettings = QuotaSettings()


DEFAULTS: Final = Settings()
