"""`--nodes`: what people may write, every fault of what they may not, and the Node objects that come of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.sandbox.nodes import PRODUCTS, NodeGroup, NodesFault, node_names, node_objects, parse_nodes
from policies import catalogue, names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param(
            "a100-40=2,a30=1",
            (
                NodeGroup(name="a100-40", product="NVIDIA-A100-SXM4-40GB", boards=1, mode="mig", count=2),
                NodeGroup(name="a30", product="NVIDIA-A30", boards=1, mode="mig", count=1),
            ),
            id="two-models",
        ),
        pytest.param(
            " h100x8 = 3 ",
            (NodeGroup(name="h100x8", product="NVIDIA-H100-80GB-HBM3", boards=8, mode="mig", count=3),),
            id="boards-and-spaces",
        ),
        pytest.param(
            "t4=1",
            (NodeGroup(name="t4", product="Tesla-T4", boards=1, mode="mps", count=1),),
            id="without-mig-mps-is-usual",
        ),
        pytest.param(
            "l4:timeslicing=1,a100-80x2:mps=1",
            (
                NodeGroup(name="l4-timeslicing", product="NVIDIA-L4", boards=1, mode="timeslicing", count=1),
                NodeGroup(name="a100-80x2-mps", product="NVIDIA-A100-SXM4-80GB", boards=2, mode="mps", count=1),
            ),
            id="modes",
        ),
        pytest.param(
            "rtx-pro-6000x4=1",
            (
                NodeGroup(
                    name="rtx-pro-6000x4",
                    product="NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
                    boards=4,
                    mode="mig",
                    count=1,
                ),
            ),
            id="a-model-with-an-x-of-its-own",
        ),
    ],
)
def test_nodes_are_understood(text: str, expected: tuple[NodeGroup, ...]) -> None:
    assert parse_nodes(text) == expected


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param("t4", ("t4: no count; write t4=1",), id="no-count"),
        pytest.param("t4=0", ("t4=0: count '0': write a whole number from 1 to 5000",), id="count-zero"),
        pytest.param("t4=5001", ("t4=5001: count '5001': write a whole number from 1 to 5000",), id="count-too-large"),
        pytest.param("t4=²", ("t4=²: count '²': write a whole number from 1 to 5000",), id="count-no-decimal"),
        pytest.param(
            "a30x17=1", ("a30x17=1: boards '17': write a whole number from 1 to 16 after the x",), id="too-many-boards"
        ),
        pytest.param(
            "a30x=1", ("a30x=1: boards '': write a whole number from 1 to 16 after the x",), id="no-boards-after-the-x"
        ),
        pytest.param(
            "l4:mig=1", ("l4:mig=1: NVIDIA-L4 has no mode 'mig'; it has mps, timeslicing",), id="no-mig-on-that-board"
        ),
        pytest.param(
            "a30:=1", ("a30:=1: NVIDIA-A30 has no mode ''; it has mig, mps, timeslicing",), id="mode-left-empty"
        ),
        pytest.param("t4=1,t4=2", ("t4=2: t4 is named twice; write one entry with the sum",), id="twice"),
        pytest.param(
            "a100=1",
            (
                "a100=1: no model 'a100'; there are a30, a100-40, a100-80, h100, h100-nvl, h200, gh200, b200, gb200, "
                "b300, rtx-pro-6000, t4, v100, a10, a40, l4, l40s",
            ),
            id="unknown-model",
        ),
        pytest.param(
            "t4x0=no,l4:mig,a30=1",
            (
                "t4x0=no: count 'no': write a whole number from 1 to 5000",
                "t4x0=no: boards '0': write a whole number from 1 to 16 after the x",
                "l4:mig: no count; write l4:mig=1",
                "l4:mig: NVIDIA-L4 has no mode 'mig'; it has mps, timeslicing",
            ),
            id="all-faults-at-once",
        ),
    ],
)
def test_every_fault_is_named_with_the_way_out(text: str, faults: tuple[str, ...]) -> None:
    with pytest.raises(NodesFault) as raised:
        parse_nodes(text)
    assert raised.value.faults == faults


@given(st.lists(st.sampled_from(["a30", "a100-40", "t4", "x2", "x", ":mps", ":mig", "=", "1", "3", ","])).map("".join))
def test_no_text_does_anything_but_name_nodes_or_faults(text: str) -> None:
    try:
        groups = parse_nodes(text)
    except NodesFault:
        return
    assert len(set(node_names(groups))) == sum(group.count for group in groups)


@pytest.mark.parametrize("short", PRODUCTS)
def test_the_catalogue_knows_every_model_that_can_be_named(short: str) -> None:
    assert catalogue.by_product(PRODUCTS[short]) is not None


def test_a_node_carries_what_discovery_would_have_written() -> None:
    first, second = node_objects(parse_nodes("a30x4=2"), "v1.36.3")
    assert first["metadata"] == {
        "name": "a30x4-0",
        "labels": {
            "kubernetes.io/hostname": "a30x4-0",
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "sandbox.apportion/simulated": "true",
            "nos.nebuly.com/gpu-partitioning": "mig",
            "nvidia.com/gpu.product": "NVIDIA-A30",
            "nvidia.com/gpu.count": "4",
            "nvidia.com/gpu.memory": str(catalogue.by_product("NVIDIA-A30").memory_mib),
        },
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    }
    assert second["metadata"]["name"] == "a30x4-1"


def test_a_node_is_created_ready_and_with_room_but_announces_no_gpu() -> None:
    """An uncut board is not announced (design 5); what is cut, the node agent announces."""
    (node,) = node_objects(parse_nodes("t4=1"), "v1.36.3")
    status = node["status"]
    assert [(condition["type"], condition["status"]) for condition in status["conditions"]] == [("Ready", "True")]
    assert status["allocatable"] == {"cpu": "192", "memory": "1536Gi", "ephemeral-storage": "2Ti", "pods": "500"}
    assert not any(resource.startswith(names.NVIDIA_PREFIX) for resource in status["allocatable"])
