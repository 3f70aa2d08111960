"""What admission does with a pod: the patch, the warnings, every reason to deny, and the laws of them all."""

import json

import jsonpatch
import msgspec
import pytest

from policies import names
from policies.admission import admit
from policies.inventory import Inventory
from policies.model import Pod
from policies.policy import PolicyView, Rule
from policies.settings import DEFAULTS, MpsSettings, Settings
from policies.view import view_node
from tests.builders import A30, A100, A100_80, T4, container, make_node, raw_pod

MIG, MPS, TURNS = make_node("mig-1"), make_node("mps-1", mode="mps"), make_node("t4-1", T4, mode="timeslicing")
FORGED = (
    '{"v":1,"containers":{"main":{"asked":{"nvidia.com/gpu":"1"},"given":{"nvidia.com/mig-7g.40gb":"1"},"mode":"mig"}}}'
)
GATES = [{"name": "nos.nebuly.com/admission"}]


def admission(raw, *nodes, labels=None, **options):
    return admit(
        msgspec.convert(raw, Pod),
        namespace="team-a",
        labels=labels or {},
        inventory=Inventory.of(view_node(node) for node in nodes or (MIG,)),
        **{"settings": DEFAULTS, **options},
    )


def patched(raw, found):
    return jsonpatch.apply_patch(raw, msgspec.to_builtins(found.patch))


def admitted(raw, *nodes, **options):
    found = admission(raw, *nodes, **options)
    assert found.faults == ()
    return patched(raw, found)


def faults(raw, *nodes, **options):
    found = admission(raw, *nodes, **options)
    assert (found.patch, found.warnings) == ((), ())
    return list(found.faults)


def under(**fields):
    """Return a policy of team-a whose one rule is the built-in one but for these fields."""
    return PolicyView(namespace="team-a", name="team-a", rules=(Rule(**fields),))


def record_of(pod):
    return json.loads(pod["metadata"]["annotations"][names.RECORD])


# The patch ------------------------------------------------------------------------------------------------------------


def test_a_share_in_limits_becomes_a_slice_in_limits_and_requests():
    """W08, W10, W11: the whole pod, word for word."""
    raw = raw_pod(limits={"cpu": "2", "nvidia.com/gpu": "500m"}, requests={"cpu": "1", "nvidia.com/gpu": "500m"})
    assert admitted(raw) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train", "namespace": "team-a", "uid": "uid-train", "resourceVersion": "1",
            "annotations": {
                "nos.nebuly.com/gpu-request": '{"v":1,"containers":{"main":{"asked":{"nvidia.com/gpu":"500m"},'
                '"given":{"nvidia.com/mig-3g.20gb":"1"},"mode":"mig","model":"NVIDIA-A100-SXM4-40GB"}}}'
            },
        },
        "spec": {
            "containers": [
                {
                    "name": "main", "image": "registry.k8s.io/pause:3.10",
                    "resources": {
                        "limits": {"cpu": "2", "nvidia.com/mig-3g.20gb": "1"},
                        "requests": {"cpu": "1", "nvidia.com/mig-3g.20gb": "1"},
                    },
                }
            ],
            "schedulingGates": GATES,
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(None, {"limits": {"X": "1"}, "requests": {"X": "1"}}, id="no resources"),
        pytest.param({}, {"limits": {"X": "1"}, "requests": {"X": "1"}}, id="empty resources"),
        pytest.param({"limits": None}, {"limits": {"X": "1"}, "requests": {"X": "1"}}, id="null limits"),
        pytest.param(
            {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1", "X": "1"}, "requests": {"X": "1"}}, id="limits alone"
        ),
        pytest.param(
            {"requests": {"cpu": "1"}}, {"limits": {"X": "1"}, "requests": {"cpu": "1", "X": "1"}}, id="requests alone"
        ),
        pytest.param(
            {"claims": [{"name": "c"}]},
            {"limits": {"X": "1"}, "requests": {"X": "1"}, "claims": [{"name": "c"}]},
            id="claims",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-1g.10gb": "0"}},
            {"limits": {"X": "1"}, "requests": {"X": "1"}},
            id="none of that very slice",
        ),
    ],
)
def test_an_annotation_adds_the_slice_beside_what_is_there(resources, expected):
    """W11."""
    raw = raw_pod(annotations={names.FRACTION: "0.25"}, containers=[{"name": "main", "resources": resources}])
    if resources is None:
        del raw["spec"]["containers"][0]["resources"]
    shown = json.loads(json.dumps(expected).replace('"X"', '"nvidia.com/mig-1g.10gb"'))
    assert admitted(raw)["spec"]["containers"][0]["resources"] == shown


@pytest.mark.parametrize("share", [{"requests": {"nvidia.com/gpu": "0.5"}}, {"limits": {"nvidia.com/gpu": "0.5"}}])
def test_a_share_in_one_of_both_is_rewritten_in_both(share):
    given = {"nvidia.com/mig-3g.20gb": "1"}
    assert admitted(raw_pod(**share))["spec"]["containers"][0]["resources"] == {"limits": given, "requests": given}


def test_an_explicit_slice_is_kept_and_recorded():
    raw = raw_pod(requests={"nvidia.com/mig-1g.5gb": "2"})
    pod = admitted(raw)
    given = {"nvidia.com/mig-1g.5gb": "2"}
    assert pod["spec"]["containers"][0]["resources"] == {"limits": given, "requests": given}
    assert record_of(pod) == {
        "v": 1,
        "containers": {"main": {"asked": given, "given": given, "mode": "mig", "model": A100}},
    }


def test_every_container_is_patched_at_its_own_index_and_no_other():
    """W01, W03."""
    plain = container("logger", requests={"cpu": "1"})
    raw = raw_pod(
        init=[plain, container("warm", limits={"nvidia.com/gpu": "0.25"})],
        containers=[plain, container("train", limits={"nvidia.com/gpu": "0.5"})],
    )
    pod = admitted(raw)
    assert [pod["spec"][kind][0] for kind in ("initContainers", "containers")] == [plain, plain]
    assert pod["spec"]["initContainers"][1]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert pod["spec"]["containers"][1]["resources"]["limits"] == {"nvidia.com/mig-3g.20gb": "1"}
    assert list(record_of(pod)["containers"]) == ["warm", "train"]


def test_an_mps_client_gets_the_user_of_its_daemon_and_host_ipc():
    """W32: at container level, where neither container nor pod says another."""
    raw = raw_pod(annotations={f"{names.MEMORY}.main": "10GB"}, containers=[container(), container("proxy")])
    spec = admitted(raw, MPS)["spec"]
    assert (spec["hostIPC"], spec["containers"][0]["securityContext"]) == (True, {"runAsUser": 1000})
    assert "securityContext" not in spec
    assert spec["containers"][1] == container("proxy")
    other = admitted(raw, MPS, settings=Settings(mps=MpsSettings(user_id=4711)), policy=under(host_ipc=False))["spec"]
    assert ("hostIPC" in other, other["containers"][0]["securityContext"]) == (False, {"runAsUser": 4711})


@pytest.mark.parametrize(
    ("pod_context", "own_context", "expected"),
    [
        ({"runAsUser": 1000}, None, None), ({"runAsNonRoot": True}, None, {"runAsUser": 1000}),
        (None, {"runAsUser": 1000}, {"runAsUser": 1000}), ({"runAsUser": 2000}, {"runAsUser": 1000}, {"runAsUser": 1000}),
        (None, {"runAsNonRoot": True}, {"runAsNonRoot": True, "runAsUser": 1000}),
    ],
)  # fmt: skip
def test_a_user_that_is_the_daemons_is_left_as_it_is(pod_context, own_context, expected):
    """W32."""
    own = {} if own_context is None else {"securityContext": own_context}
    raw = raw_pod(
        containers=[container(limits={"nvidia.com/gpu-10gb": "1"}, **own)],
        **({"securityContext": pod_context} if pod_context else {}),
    )
    assert admitted(raw, MPS)["spec"]["containers"][0].get("securityContext") == expected


def test_our_gate_goes_after_foreign_ones_and_is_not_doubled():
    share = {names.FRACTION: "0.5"}
    assert admitted(raw_pod(annotations=share, gates=["other"]))["spec"]["schedulingGates"] == [
        {"name": "other"},
        *GATES,
    ]
    assert admitted(raw_pod(annotations=share, gates=[names.GATE]))["spec"]["schedulingGates"] == GATES


@pytest.mark.parametrize(
    ("raw", "nodes"),
    [
        pytest.param(raw_pod(limits={"nvidia.com/gpu": "1"}), (MIG,), id="a whole GPU"),
        pytest.param(raw_pod(annotations={names.FRACTION: "0.5", names.MODE: "timeslicing"}), (TURNS,), id="a time slice"),
        pytest.param(raw_pod(limits={"nvidia.com/mig-1g.5gb": "1"}), (make_node(mode=None, resources={"nvidia.com/mig-1g.5gb": "7"}),),
                     id="a slice of another plugin"),
    ],
)  # fmt: skip
def test_who_needs_no_board_cut_is_not_gated(raw, nodes):
    assert "schedulingGates" not in admitted(raw, *nodes)["spec"]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(raw_pod(limits={"cpu": "1"}), id="no GPU"),
        pytest.param(raw_pod(limits={"nvidia.com/gpu": "2"}), id="whole GPUs"),
        pytest.param(raw_pod(limits={"nvidia.com/gpu": "0"}), id="zero"),
        pytest.param(raw_pod(annotations={"gpu-fraction": "0.5"}, schedulerName="kai-scheduler"), id="another tool"),
        pytest.param(raw_pod(containers=[container(env={"NVIDIA_VISIBLE_DEVICES": "all"})]), id="sees all, but has no slice"),
        pytest.param(raw_pod(containers=[container(securityContext={"privileged": True}, limits={"nvidia.com/gpu": "1"})]), id="privileged with a whole GPU"),
        pytest.param(raw_pod(node="n1", limits={"nvidia.com/gpu": "1"}), id="whole GPU on a named node"),
    ],
)  # fmt: skip
def test_a_pod_without_slices_is_left_alone(raw):
    found = admission(raw, MIG, make_node("whole", mode=None, resources={"nvidia.com/gpu": "8"}))
    assert (found.patch, found.warnings, found.faults) == ((), (), ())


def test_a_slice_of_another_plugin_is_left_alone():
    raw = raw_pod(limits={"nvidia.com/mig-1g.5gb": "2"}, containers=None)
    found = admission(raw, make_node("a", A30), make_node("b", mode=None, resources={"nvidia.com/mig-1g.5gb": "7"}))
    assert (found.patch, found.warnings, found.faults) == ((), (), ())
    ours = admission(raw, make_node("a"), make_node("b", mode=None, resources={"nvidia.com/mig-1g.5gb": "7"}))
    assert ours.patch, "where ours can make it too, the pod is ours"


def test_nos_scheduler_becomes_the_default_one():
    found = admission(raw := raw_pod(schedulerName="nos-scheduler"))
    assert patched(raw, found)["spec"]["schedulerName"] == "default-scheduler"
    assert found.warnings == ("schedulerName nos-scheduler is now default-scheduler: nos is no longer there",)


def test_a_mark_of_eviction_that_was_copied_with_a_pod_is_left_out_with_a_warning():
    raw = raw_pod(annotations={names.EVICTED_FOR: "team-b/claims"})
    found = admission(raw)
    assert names.EVICTED_FOR not in patched(raw, found)["metadata"]["annotations"]
    assert found.warnings == (
        "nos.nebuly.com/evicted-for marks a pod that is evicted, and only Apportion writes it: a new pod begins without it",
    )
    assert admission(patched(raw, found)).warnings == ()


def test_what_only_we_write_is_taken_from_new_pods():
    """W35: no quota governs the pod, so it has no capacity label, whatever the user wrote."""
    raw = raw_pod(
        labels={"nos.nebuly.com/capacity": "in-quota", "app": "x"},
        annotations={"nos.nebuly.com/evicted-for": "a/b", names.RECORD: "{}", "a": "b"},
    )
    pod = admitted(raw)
    assert (pod["metadata"]["labels"], pod["metadata"]["annotations"]) == ({"app": "x"}, {"a": "b"})


@pytest.mark.parametrize(
    "fields", [{"annotations": {names.FRACTION: "0.25"}}, {"limits": {"nvidia.com/mig-1g.5gb": "1"}}]
)
def test_a_forged_record_is_replaced(fields):
    """W35."""
    raw = raw_pod(**{**fields, "annotations": {**fields.get("annotations", {}), names.RECORD: FORGED}})
    assert "7g.40gb" not in json.dumps(record_of(admitted(raw)))


PRODUCT = {"key": "nvidia.com/gpu.product", "operator": "In", "values": [A100]}
ZONE = {"key": "kubernetes.io/hostname", "operator": "Exists"}
FIELD = {"key": "metadata.name", "operator": "In", "values": ["a", "b"]}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(None, [{"matchExpressions": [PRODUCT]}], id="absent"),
        pytest.param({}, [{"matchExpressions": [PRODUCT]}], id="empty"),
        pytest.param({"nodeAffinity": None, "podAffinity": {}}, [{"matchExpressions": [PRODUCT]}], id="null"),
        pytest.param({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}, [{"matchExpressions": [PRODUCT]}], id="preferred only"),
        pytest.param({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [ZONE]}, {"matchFields": [FIELD]}, {"matchExpressions": [], "matchFields": [FIELD]}, {}]}}},
            [{"matchExpressions": [ZONE, PRODUCT]}, {"matchFields": [FIELD], "matchExpressions": [PRODUCT]},
             {"matchExpressions": [PRODUCT], "matchFields": [FIELD]}, {}], id="every term, but not one that matches nothing"),
    ],
)  # fmt: skip
def test_a_pod_is_kept_to_products_whatever_affinity_it_has(affinity, expected):
    """A quarter by 1g.10gb is right on an A100-40 only; W11."""
    raw = raw_pod(annotations={names.FRACTION: "0.25"}, **({} if affinity is None else {"affinity": affinity}))
    found = admission(raw, make_node("a"), make_node("b", A100_80))
    pod = patched(raw, found)
    node_affinity = pod["spec"]["affinity"]["nodeAffinity"]
    assert node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] == {"nodeSelectorTerms": expected}
    assert {**pod["spec"]["affinity"], "nodeAffinity": None} == {**(affinity or {}), "nodeAffinity": None}
    assert (
        found.reasons[1]
        == "main: kept to NVIDIA-A100-SXM4-40GB, where nvidia.com/mig-1g.10gb is what was asked for and what the policy allows"
    )


# Denials --------------------------------------------------------------------------------------------------------------

CLIENT = {"nvidia.com/gpu-10gb": "1"}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def pod_with(limits=None, annotations=None, spec=None, **own):
    return raw_pod(annotations=annotations, containers=[container(limits=limits, **own)], **(spec or {}))


@pytest.mark.parametrize(
    ("raw", "options", "told"),
    [
        pytest.param(pod_with(CLIENT, spec={"securityContext": {"runAsUser": 2000}}), {},
                     "spec.securityContext.runAsUser: 2000: an MPS client must run as the user of its daemon, 1000, or it hangs: write 1000, "
                     "leave it out, or ask for MIG", id="W32 another user"),
        pytest.param(pod_with(CLIENT, securityContext={"runAsUser": 0}), {},
                     "spec.containers[0].securityContext.runAsUser: 0: an MPS client must run as the user of its daemon, 1000, or it hangs: "
                     "write 1000, leave it out, or ask for MIG", id="W32 root"),
        pytest.param(pod_with(CLIENT, volumeMounts=[{"name": "a", "mountPath": "/data"}, {"name": "b", "mountPath": "/dev//shm/"}]), {},
                     "spec.containers[0].volumeMounts[1].mountPath: /dev//shm/: hides the shared memory by which an MPS client talks to its daemon: "
                     "mount it elsewhere, or ask for MIG", id="shared memory"),
        pytest.param(pod_with(CLIENT, volumeMounts=[{"name": "a", "mountPath": "//dev/a/../shm"}]), {},
                     "spec.containers[0].volumeMounts[0].mountPath: //dev/a/../shm: hides the shared memory by which an MPS client talks to its "
                     "daemon: mount it elsewhere, or ask for MIG", id="shared memory by a detour"),
        pytest.param(pod_with(CLIENT, spec={"hostUsers": False}), {},
                     "spec.hostUsers: false: in a user namespace no client of MPS is the user of its daemon, 1000, and hostIPC is forbidden: "
                     "leave it out, or ask for MIG", id="W31 W32 a user namespace"),
        pytest.param(pod_with(CLIENT), {"labels": RESTRICTED},
                     "spec.hostIPC: true: MPS needs it, and pod-security.kubernetes.io/enforce=restricted of namespace team-a forbids it: "
                     "ask for MIG, or have the policy say mps.hostIPC: false", id="W31 pod security"),
        pytest.param(pod_with({"nvidia.com/gpu-10gb": "2"}), {},
                     "spec.containers[0].resources.limits[nvidia.com/gpu-10gb]: 2: an MPS client talks to one daemon, so a container gets one slice: "
                     "ask for one larger slice (nvidia.com/gpu-20gb), or give each a container of its own", id="two MPS slices"),
        pytest.param(pod_with(annotations={names.MEMORY: "10GB", names.COUNT: "2", names.MODE: "mps"}), {},
                     "metadata.annotations[nos.nebuly.com/gpu-count]: 2: an MPS client talks to one daemon, so a container gets one slice: "
                     "ask for one larger slice, or give each a container of its own", id="count of MPS slices"),
        pytest.param(pod_with(CLIENT, env={"NVIDIA_VISIBLE_DEVICES": "all"}), {},
                     "spec.containers[0].env[0]: NVIDIA_VISIBLE_DEVICES=all: would reach beyond the slices of this pod: leave it out, it is set where "
                     "the pod runs", id="W06 all"),
        pytest.param(pod_with(CLIENT, env={"A": "b", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=30G"}), {},
                     "spec.containers[0].env[1]: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=30G: would reach beyond the slices of this pod: leave it out, it is "
                     "set where the pod runs", id="W06 MPS limit"),
        pytest.param(pod_with(CLIENT, securityContext={"privileged": True}), {},
                     "spec.containers[0].securityContext.privileged: true: sees every board of the node, so it may not stand in a pod with a slice: "
                     "leave it out", id="privileged"),
        pytest.param(raw_pod(node="n1", limits=CLIENT), {},
                     "spec.nodeName: n1: a pod that names its node passes by the gate at which it waits for its slice: select the node by its label "
                     "kubernetes.io/hostname", id="node named at creation"),
        pytest.param(pod_with(CLIENT, {names.MODE: "mig"}), {},
                     "spec.containers[0].resources.limits[nvidia.com/gpu-10gb]: 1: it is made by mps, but nos.nebuly.com/gpu-mode says mig: keep one",
                     id="mode against slice"),
        pytest.param(pod_with(CLIENT), {"policy": under(modes=("mig",), nameable=("mig",))},
                     "spec.containers[0].resources.limits[nvidia.com/gpu-10gb]: 1: nvidia.com/gpu-10gb is made by mps: the policy allows mig",
                     id="slice outside the policy"),
        pytest.param(pod_with(annotations={names.FRACTION: "0.5", names.MODE: "mps,mig"}), {"policy": under(modes=("mps",), nameable=("mps",))},
                     "metadata.annotations[nos.nebuly.com/gpu-mode]: mps,mig: mig may not be named here: the policy allows mps",
                     id="mode outside the policy"),
    ],
)  # fmt: skip
def test_a_conflict_is_told_with_both_values_and_the_way_out(raw, options, told):
    assert faults(raw, MPS, **options) == [told]


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_where_pod_security_forbids_host_ipc_a_share_becomes_mig(level):
    """W31."""
    raw = raw_pod(annotations={names.FRACTION: "0.5", names.MODE: "mps,mig"})
    found = admission(raw, MPS, make_node("b", A30), labels={"pod-security.kubernetes.io/enforce": level})
    assert patched(raw, found)["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-2g.12gb": "1"}
    assert found.warnings[0].startswith("mps is passed over: spec.hostIPC: true: MPS needs it")
    assert "hostIPC" in admitted(raw, MPS, labels={"pod-security.kubernetes.io/enforce": "privileged"})["spec"]
    assert "hostIPC" not in admitted(raw, MPS, labels=RESTRICTED, policy=under(host_ipc=False))["spec"]


@pytest.mark.parametrize("value", ["none", "void"])
def test_a_container_that_sees_no_device_is_no_danger(value):
    raw = raw_pod(
        limits=None, containers=[container(limits=CLIENT), container("b", env={"NVIDIA_VISIBLE_DEVICES": value})]
    )
    assert admission(raw, MPS).faults == ()


@pytest.mark.parametrize("other", [{"env": {"NVIDIA_VISIBLE_DEVICES": "0"}}, {"securityContext": {"privileged": True}}])
@pytest.mark.parametrize("field", ["containers", "init"])
def test_no_other_container_of_the_pod_may_reach_beyond_the_slice(other, field):
    """W06: containers and init containers, also those without a slice."""
    extra = container("extra", **other)
    raw = raw_pod(
        containers=[container(limits=CLIENT), *([extra] if field == "containers" else [])],
        init=[extra] if field == "init" else None,
    )
    assert len(faults(raw, MPS)) == 1
    assert admission(raw, MPS, policy=under(visible_devices=True, privileged=True)).faults == ()


def test_a_value_that_comes_from_elsewhere_is_not_trusted():
    """W06."""
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}}
    assert faults(raw_pod(containers=[{**container(limits=CLIENT), "env": [variable]}]), MPS)


def test_all_faults_of_a_pod_are_told_at_once():
    raw = raw_pod(
        annotations={f"{names.FRACTION}.a": "2", f"{names.MEMORY}.b": "500Gi", names.MODE: "mig"},
        containers=[
            container("a", env={"NVIDIA_VISIBLE_DEVICES": "all"}),
            container("b", securityContext={"privileged": True}),
        ],
    )
    assert [text.split(":")[0] for text in faults(raw)] == [
        "metadata.annotations[nos.nebuly.com/gpu-fraction.a]", "metadata.annotations[nos.nebuly.com/gpu-memory.b]",
        "spec.containers[0].env[0]", "spec.containers[1].securityContext.privileged",
    ]  # fmt: skip


def test_a_wish_that_cannot_be_read_hides_no_other_fault():
    raw = raw_pod(
        annotations={names.FRACTION: "half", names.MODE: "gpu"},
        containers=[container(env={"NVIDIA_VISIBLE_DEVICES": "all"}, securityContext={"privileged": True})],
    )
    assert [text.split(":")[0] for text in faults(raw)] == [
        "metadata.annotations[nos.nebuly.com/gpu-fraction]", "metadata.annotations[nos.nebuly.com/gpu-mode]",
        "spec.containers[0].env[0]", "spec.containers[0].securityContext.privileged",
    ]  # fmt: skip


# What is said ---------------------------------------------------------------------------------------------------------


def test_several_devices_are_said_to_be_no_larger_one():
    found = admission(raw_pod(annotations={names.FRACTION: "0.4", names.COUNT: "2"}))
    assert found.warnings == (
        "nos.nebuly.com/gpu-fraction 0.4 -> nvidia.com/mig-3g.20gb (3/7 compute, 19.5 GiB of NVIDIA-A100-SXM4-40GB); isolated in hardware",
        "main gets 2 devices of that size, not one larger: a program must use each of them",
    )


def test_reasons_say_what_was_done_and_what_was_left():
    raw = raw_pod(
        containers=[
            container("a", limits={"nvidia.com/mig-1g.5gb": "1"}),
            container("b", limits={"nvidia.com/gpu": "2"}),
        ]
    )
    assert admission(raw).reasons == (
        "a: nvidia.com/mig-1g.5gb 1 is asked for by name",
        "b: nvidia.com/gpu 2 is left as it is",
        "waits at the gate nos.nebuly.com/admission until its slices are there",
        "judged by the built-in rule, for no policy governs the namespace: modes mig, mps",
    )


def test_who_asks_for_a_whole_gpu_where_only_slices_are_given_is_told_the_ways_out():
    """It would wait with the scheduler for ever; a node may yet come, so that it is not denied."""
    raw = raw_pod(limits={"nvidia.com/gpu": "1"})
    other = make_node("other", mode=None, resources={"nvidia.com/gpu": "8"})
    assert admission(raw, MIG).warnings == (
        "no node that the pod may use announces nvidia.com/gpu: where the label nos.nebuly.com/gpu-partitioning is, boards "
        'are given as slices; ask for nos.nebuly.com/gpu-fraction: "1", or keep a node without the label',
    )
    assert admission(raw, MIG, other).warnings == ()
    assert admission(raw_pod(limits={"nvidia.com/gpu": "0"}), MIG).warnings == ()


# A second look --------------------------------------------------------------------------------------------------------


def test_a_container_that_another_webhook_adds_is_treated_at_the_second_look():
    """W18."""
    first = admitted(raw_pod(limits={"nvidia.com/gpu": "0.5"}))
    first["spec"]["containers"].append(container("side", limits={"nvidia.com/gpu": "0.25"}))
    second = admitted(first)
    assert second["spec"]["containers"][0] == first["spec"]["containers"][0]
    assert second["spec"]["containers"][1]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert list(record_of(second)["containers"]) == ["main", "side"]


def test_an_answered_wish_is_not_resolved_again_but_checked():
    """W16: the A100 has gone away in between; its slice is still asked for, and no longer to be had."""
    first = admitted(raw_pod(annotations={names.FRACTION: "0.25"}))
    assert faults(first, make_node("b", A30)) == [
        "spec.containers[0].resources.limits[nvidia.com/mig-1g.10gb]: 1: no board makes 1g.10gb; NVIDIA-A30 makes 1g.6gb, 2g.12gb, 4g.24gb"
    ]
    assert admission(first, make_node("a"), make_node("b", A30)).patch == ()


def test_a_model_that_our_own_affinity_singles_out_does_not_change_the_record():
    """W16: 0.25 keeps the pod to the A100-40, after which it alone makes the other container's slice."""
    raw = raw_pod(
        annotations={names.FRACTION: "0.25"},
        containers=[container("a"), container("b", limits={"nvidia.com/mig-1g.10gb": "1"})],
    )
    boards = (MIG, make_node("mig-2", A100_80))
    once = admitted(raw, *boards)
    assert "model" not in record_of(once)["containers"]["b"]
    assert admission(once, *boards).patch == ()
