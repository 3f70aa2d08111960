"""The kubelet's interfaces as we have written them down: numbers and types are what is on the wire, whatever the names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.agent.proto import deviceplugin_pb2, podresources_pb2

ROOT = Path(__file__).parents[2]

# As published by Kubernetes: kubelet/pkg/apis/deviceplugin/v1beta1/api.proto and podresources/v1/api.proto.
DEVICE_PLUGIN = """
    RegisterRequest{version=1 string, endpoint=2 string, resource_name=3 string, options=4 DevicePluginOptions}
    DevicePluginOptions{pre_start_required=1 bool, get_preferred_allocation_available=2 bool}
    ListAndWatchResponse{devices=1 rep Device}
    Device{ID=1 string, health=2 string, topology=3 TopologyInfo}
    TopologyInfo{nodes=1 rep NUMANode}
    NUMANode{ID=1 int64}
    PreferredAllocationRequest{container_requests=1 rep ContainerPreferredAllocationRequest}
    ContainerPreferredAllocationRequest{available_deviceIDs=1 rep string, must_include_deviceIDs=2 rep string, allocation_size=3 int32}
    PreferredAllocationResponse{container_responses=1 rep ContainerPreferredAllocationResponse}
    ContainerPreferredAllocationResponse{deviceIDs=1 rep string}
    AllocateRequest{container_requests=1 rep ContainerAllocateRequest}
    ContainerAllocateRequest{devices_ids=1 rep string}
    AllocateResponse{container_responses=1 rep ContainerAllocateResponse}
    ContainerAllocateResponse{envs=1 rep EnvsEntry, mounts=2 rep Mount, devices=3 rep DeviceSpec, annotations=4 rep AnnotationsEntry, cdi_devices=5 rep CDIDevice}
    Mount{container_path=1 string, host_path=2 string, read_only=3 bool}
    DeviceSpec{container_path=1 string, host_path=2 string, permissions=3 string}
    CDIDevice{name=1 string}
    PreStartContainerRequest{devices_ids=1 rep string}
    PreStartContainerResponse{}
    Empty{}
"""
POD_RESOURCES = """
    ListPodResourcesRequest{}
    ListPodResourcesResponse{pod_resources=1 rep PodResources}
    PodResources{name=1 string, namespace=2 string, containers=3 rep ContainerResources}
    ContainerResources{name=1 string, devices=2 rep ContainerDevices}
    ContainerDevices{resource_name=1 string, device_ids=2 rep string}
    AllocatableResourcesRequest{}
    AllocatableResourcesResponse{devices=1 rep ContainerDevices}
"""
TYPES = {3: "int64", 5: "int32", 8: "bool", 9: "string"}


def described(module):
    """Return every message of a generated module in the form of the tables above."""
    for name, message in module.DESCRIPTOR.message_types_by_name.items():
        fields = [
            f"{field.name}={field.number} {'rep ' * field.is_repeated}"
            + (field.message_type.name if field.message_type else TYPES[field.type])
            for field in message.fields
        ]
        yield f"{name}{{{', '.join(fields)}}}"


@pytest.mark.parametrize(
    ("module", "package", "table", "services"),
    [
        pytest.param(
            deviceplugin_pb2,
            "v1beta1",
            DEVICE_PLUGIN,
            {
                "Registration": ["Register"],
                "DevicePlugin": [
                    "GetDevicePluginOptions", "ListAndWatch", "GetPreferredAllocation", "Allocate", "PreStartContainer",
                ],
            },
            id="device-plugin",
        ),
        pytest.param(
            podresources_pb2,
            "v1",
            POD_RESOURCES,
            {"PodResourcesLister": ["List", "GetAllocatableResources"]},
            id="pod-resources",
        ),
    ],
)  # fmt: skip
def test_messages_and_services_are_those_of_the_kubelet(module, package, table, services):
    assert module.DESCRIPTOR.package == package
    assert sorted(described(module)) == sorted(line.strip() for line in table.strip().splitlines())
    found = module.DESCRIPTOR.services_by_name
    assert {name: [method.name for method in service.methods] for name, service in found.items()} == services


def test_a_message_is_what_the_kubelet_sends():
    """By hand: tag 0x0a is field 1, length-delimited."""
    request = deviceplugin_pb2.AllocateRequest.FromString(b"\x0a\x06\x0a\x04GPU0\x0a\x06\x0a\x04GPU1")
    assert [[*asked.devices_ids] for asked in request.container_requests] == [["GPU0"], ["GPU1"]]
    answer = deviceplugin_pb2.ContainerAllocateResponse(envs={"A": "b"})
    assert answer.SerializeToString() == b"\x0a\x06\x0a\x01A\x12\x01b"


def test_what_is_committed_is_what_the_protos_generate(tmp_path):
    """Else run `make protos`."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed: the generated code is not compared")
    protos = sorted((ROOT / "reconciler/agent/proto").glob("*.proto"))
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", ROOT, *outputs, *protos], check=True, timeout=30)
    made = {path.name: path.read_text() for path in tmp_path.rglob("*.py*")}
    committed = {path.name: path.read_text() for path in (ROOT / "reconciler/agent/proto").glob("*_pb2*.py*")}
    assert set(made) == set(committed)
    for name, text in made.items():
        assert _unversioned(text) == _unversioned(committed[name]), name


def _unversioned(text):
    return re.sub(r"(?m)^(# Protobuf Python Version: |GRPC_GENERATED_VERSION = | {4}\d+,$).*", "", text)
