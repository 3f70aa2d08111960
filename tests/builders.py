"""Builders of pods and nodes for tests: say only what a test is about.

`make_pod("team-a/train").limits(nvidia_gpu...)` would hide the keys that matter, so resources are given as they are
written in YAML: `make_pod("team-a/train", limits={"nvidia.com/gpu": "0.5"})`.
"""

import json

import msgspec

from policies import names
from policies.model import Node, Pod

A100 = "NVIDIA-A100-SXM4-40GB"
A100_80 = "NVIDIA-A100-SXM4-80GB"
A30 = "NVIDIA-A30"
H100 = "NVIDIA-H100-80GB-HBM3"
T4 = "Tesla-T4"


def container(name="main", *, limits=None, requests=None, env=None, **fields):
    """Return a container as JSON; without limits and requests it has no resources at all."""
    made = {"name": name, "image": "registry.k8s.io/pause:3.10", **fields}
    resources = {key: value for key, value in (("limits", limits), ("requests", requests)) if value is not None}
    if resources:
        made["resources"] = resources
    if env:
        made["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return made


def raw_pod(
    key="team-a/train",
    *,
    limits=None,
    requests=None,
    annotations=None,
    labels=None,
    containers=None,
    init=None,
    node=None,
    gates=(),
    phase=None,
    created=None,
    uid=None,
    version=None,
    owner=False,
    **spec,
):
    """Return a pod as the JSON of the API; `limits` and `requests` are those of its only container."""
    namespace, _, name = key.rpartition("/")
    metadata = {
        "name": name,
        "namespace": namespace,
        "annotations": annotations,
        "labels": labels,
        "creationTimestamp": created,
        "uid": uid or f"uid-{name}",
        "resourceVersion": version or "1",
    }
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": "uid-owner", "controller": True}
        ]
    made = {"containers": containers or [container(limits=limits, requests=requests)], **spec}
    if init:
        made["initContainers"] = init
    if node:
        made["nodeName"] = node
    if gates:
        made["schedulingGates"] = [{"name": gate} for gate in gates]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": made,
        "metadata": {key: value for key, value in metadata.items() if value is not None},
    }
    if phase:
        pod["status"] = {"phase": phase}
    return pod


def make_pod(key="team-a/train", **fields):
    """Return a decoded Pod; see raw_pod."""
    return msgspec.convert(raw_pod(key, **fields), Pod)


def raw_node(
    name="n1",
    product=A100,
    *,
    count=1,
    mode=names.MIG,
    labels=None,
    annotations=None,
    placements=None,
    resources=None,
    ready=True,
    cordoned=False,
    taints=(),
    memory=None,
    agent=None,
):
    """Return a node of `count` boards as the JSON of the API. `placements` is its status-placements, as data.

    `agent` is what its agent says is wrong, as reason and message.
    """
    notes = dict(annotations or {})
    if placements is not None:
        notes[names.STATUS_PLACEMENTS] = json.dumps(placements)
    marks = {"kubernetes.io/hostname": name, **(labels or {})}
    if product:
        marks |= {names.PRODUCT_LABEL: product, names.COUNT_LABEL: str(count)}
    if mode:
        marks[names.PARTITIONING_LABEL] = mode
    if memory:
        marks[names.MEMORY_LABEL] = str(memory)
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", **(resources or {})}
    said = dict(zip(("reason", "message"), agent, strict=True)) if agent else {}
    partitioning = {"type": names.PARTITIONING_CONDITION, "status": "False", **said}
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": marks, "annotations": notes, "resourceVersion": "1"},
        "spec": {"unschedulable": cordoned, "taints": [dict(taint) for taint in taints]},
        "status": {"capacity": room, "allocatable": room,
                   "conditions": [{"type": "Ready", "status": "True" if ready else "False"}, *([partitioning] if agent else [])]},
    }  # fmt: skip


def make_node(name="n1", product=A100, **fields):
    """Return a decoded Node; see raw_node."""
    return msgspec.convert(raw_node(name, product, **fields), Node)
