"""Boards before NVIDIA's Volta: MPS serves fewer clients there, and limits nothing."""

import json

import pytest

from policies import names
from policies.annotations import BoardInventory
from policies.boards import inventory_model
from policies.settle import settle
from tests.policies.cluster import cluster, gated, node

P40, P100, T4 = "Tesla-P40", "Tesla-P100-PCIE-16GB", "Tesla-T4"


def entry(product, capability):
    return BoardInventory(index=0, uuid="GPU-0", model=product, memory_mib=24576, compute_capability=capability)


@pytest.mark.parametrize(
    ("product", "capability", "clients"),
    [
        pytest.param(P40, "6.1", 16, id="Pascal-in-no-table"),
        pytest.param("Tesla-M60", "5.2", 16, id="Maxwell"),
        pytest.param("Tesla-V100-SXM2-16GB", "7.0", 48, id="Volta"),
        pytest.param("NVIDIA-TITAN-RTX", "7.5", 48, id="Turing-in-no-table"),
        pytest.param("NVIDIA-B200", "10.0", 48, id="two-digits"),
        pytest.param(T4, "6.1", 16, id="what-the-board-says-comes-before-the-table"),
        pytest.param(P100, None, 16, id="an-older-agent-and-the-table"),
        pytest.param(P40, None, 48, id="an-older-agent-and-no-table"),
    ],
)
def test_a_board_says_by_its_compute_capability_how_many_clients_it_serves(product, capability, clients):
    """NVIDIA's guide: 48 clients of MPS since Volta (7.0), 16 before."""
    assert inventory_model(entry(product, capability)).max_clients == clients


@pytest.mark.parametrize("capability", ["6", "6.1.0", "sm_61", ""])
def test_a_compute_capability_that_is_none_is_a_fault_of_its_board(capability):
    board = {"index": 0, "uuid": "GPU-0", "model": P40, "memoryMiB": 24576, "computeCapability": capability}
    seen = node(product=P40, mode="mps", annotations={names.INVENTORY: json.dumps([board])})
    (fault,) = cluster([seen], []).nodes[0].faults
    assert "board 0: computeCapability" in fault


@pytest.mark.parametrize(("capability", "released"), [("6.1", 16), ("7.5", 17)], ids=["before-Volta", "after"])
def test_no_more_slices_are_planned_on_a_board_than_it_serves_clients(capability, released):
    """24 GB have room for 24 slices of 1 GB, and 17 pods ask for one each."""
    board = {"index": 0, "uuid": "GPU-0", "model": P40, "memoryMiB": 24576, "computeCapability": capability}
    seen = node(product=P40, mode="mps", annotations={names.INVENTORY: json.dumps([board])}, placements={"0": []})
    decision = settle(cluster([seen], [gated(f"ml/p{number:02}", "1gb") for number in range(17)]))
    (layout,) = decision.layouts
    assert len(layout.target[0]) == released
