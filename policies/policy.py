"""What a namespace allows: the rule by which the wishes of a pod are answered. An argument of every decision."""

from typing import Final

import msgspec

from policies import names


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule; the defaults are those of the built-in one, which holds where no policy says otherwise.

    Attributes:
        modes: in order of preference, for pods that name none.
        nameable: modes that a pod may name, by annotation or by an explicit slice.
        host_ipc: MPS clients get hostIPC.
        visible_devices: users may set NVIDIA_VISIBLE_DEVICES and CUDA_MPS_* beside a slice.
        privileged: a privileged container, which sees the whole board, may stand beside a slice.
    """

    modes: tuple[str, ...] = (names.MIG, names.MPS)
    nameable: tuple[str, ...] = names.MODES
    host_ipc: bool = True
    visible_devices: bool = False
    privileged: bool = False


BUILT_IN: Final = Rule()
