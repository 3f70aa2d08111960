"""Configurations of mig-parted: what they say of a node's boards, and every fault of the file at once."""

import pytest

from policies.annotations import BoardInventory
from policies.faults import UnsoundError
from reconciler.agent.fixed.migparted import read_mig_config
from tests.builders import A30, A100, A100_80, T4

DEFAULT = """
version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  all-1g.5gb:
  - {devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 7}}
  all-balanced:
  - device-filter: ["0x20B010DE", "0x20b110de"]
    devices: all
    mig-enabled: true
    mig-devices: {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
  - device-filter: "0x20B210DE"
    devices: [1]
    mig-enabled: true
    mig-devices: {"1g.10gb+me": 1, 1g.10gb.me: 1}
"""


def board(index, model=A100):
    return BoardInventory(index=index, uuid=f"GPU-{index}", model=model, memory_mib=40960)


def rules(name, text=DEFAULT):
    return read_mig_config(text, name)


def faults(text, name):
    with pytest.raises(UnsoundError) as caught:
        read_mig_config(text, name)
    return list(caught.value.faults)


def chosen(rule, *boards):
    told = []
    return [board.index for board in rule.of(boards, told)], told


def test_counts_become_slices_of_each_board_that_is_meant():
    (rule,) = rules("all-1g.5gb")
    assert (rule.mig, rule.profiles) == (True, ("1g.5gb",) * 7)
    assert chosen(rule, board(0), board(1)) == ([0, 1], [])


def test_a_profile_is_known_in_both_spellings():
    assert rules("all-balanced")[1].profiles == ("1g.10gb+me", "1g.10gb+me")


def test_a_filter_means_boards_by_their_pci_ids():
    first, second = rules("all-balanced")
    boards = board(0), board(1, A100_80), board(2, A30)
    assert chosen(first, *boards) == ([0], [])
    assert chosen(second, *boards) == ([1], [])


def test_a_filter_says_nothing_of_a_board_whose_id_nobody_knows():
    first, _ = rules("all-balanced")
    assert chosen(first, board(0, T4)) == (
        [],
        [
            "mig-configs[all-balanced][0].device-filter: GPU 0 is a Tesla-T4, whose PCI device id is not known here; "
            "leave the filter out and name the GPU in devices"
        ],
    )


def test_boards_that_are_not_there_are_told():
    (rule,) = rules("a", "version: v1\nmig-configs: {a: [{devices: [0, 5], mig-enabled: false}]}")
    assert chosen(rule, board(0)) == ([0], ["mig-configs[a][0].devices[1]: 5: no such GPU: the node has 0 (GPU-0)"])


def test_a_name_that_is_not_there_is_told_with_those_that_are():
    assert faults(DEFAULT, "all-2g.10gb") == [
        "mig-configs: there is no all-2g.10gb: there are all-1g.5gb, all-balanced, all-disabled"
    ]


def test_every_fault_of_the_file_is_told_at_once():
    text = """
    version: v1
    mig-configs:
      a: [{devices: all, mig-enabled: false, mig-devices: {"1g.5gb": 7}}]
      b: [{device-filter: ["0x20B", "0x20B010DE"], devices: [x], mig-enabled: true, mig-devices: {"1g.5gb": -1}}]
    """
    assert faults(text, "a") == [
        "mig-configs[a][0].mig-enabled: false: with mig-devices it must be true",
        "mig-configs[b][0].device-filter: 0x20B: no PCI id of NVIDIA: write 0x, four digits of the device, and 10DE",
        "mig-configs[b][0].mig-devices[1g.5gb]: -1: a count is from 0 to 64",
        "mig-configs[b][0].devices[0]: x: write all, a number of GPUs, or a list of indices and UUIDs",
    ]


def test_a_misspelt_key_is_no_fault_that_is_passed_over():
    text = "version: v1\nmig-configs: {a: [{devices: all, mig-enable: true}]}"
    assert faults(text, "a") == [
        "mig-configs[a][0].mig-enabled: missing: true or false is needed",
        "mig-configs[a][0].mig-enable: true: there is no such field: there are devices, mig-enabled, mig-devices, device-filter",
    ]
