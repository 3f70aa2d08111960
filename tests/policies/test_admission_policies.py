"""What a policy makes of a pod: modes, whole GPUs, models, rounding, limits, MPS, devices, and quota by label."""

import json

import jsonpatch
import msgspec
import pytest
from msgspec.structs import replace

from policies import names
from policies.admission import admit
from policies.estimate import Standings
from policies.inventory import Inventory
from policies.model import Pod
from policies.policy import Limits, PolicyView, Rule
from policies.settings import DEFAULTS
from policies.shares import read_memory, read_share
from policies.view import view_node
from tests.builders import A30, A100, A100_80, T4, container, make_node, raw_pod
from tests.policies.teams import quota

MIG, MPS, MIG_80 = make_node("mig-1"), make_node("mps-1", mode="mps"), make_node("mig-80", A100_80)
MPS_80, TURNS = make_node("mps-80", A100_80, mode="mps"), make_node("t4-1", T4, mode="timeslicing")
GPU, SHARE, MEMORY = "nvidia.com/gpu", names.FRACTION, names.MEMORY


def under(**fields):
    """Return a policy of team-a with one rule."""
    return PolicyView(namespace="team-a", name="p", rules=(Rule(**fields),))


def limits(least=None, most=None, slices=None):
    return Limits(least=least and read_share(least), most=most and read_share(most), slices=slices)


def review(raw, policy, *nodes, **options):
    return admit(
        msgspec.convert(raw, Pod),
        namespace="team-a",
        policy=policy,
        inventory=Inventory.of(view_node(node) for node in nodes or (MIG, MPS)),
        **{"labels": {}, "settings": DEFAULTS, **options},
    )


def patched(raw, found):
    assert found.faults == ()
    return jsonpatch.apply_patch(json.loads(json.dumps(raw)), msgspec.to_builtins(found.patch))


def admitted(raw, policy, *nodes, **options):
    """Return the pod after its review, of which a second one changes nothing (W16)."""
    after = patched(raw, review(raw, policy, *nodes, **options))
    assert review(after, policy, *nodes, **options).faults == ()
    assert review(after, policy, *nodes, **options).patch == ()
    return after


def given(raw, policy, *nodes, **options):
    limits = admitted(raw, policy, *nodes, **options)["spec"]["containers"][0]["resources"]["limits"]
    return {name.removeprefix("nvidia.com/"): amount for name, amount in limits.items()}


def asks(text, key=SHARE, **fields):
    return raw_pod(annotations={key: text}, **fields)


def gpus(amount, resource=GPU, **fields):
    return raw_pod(limits={resource: str(amount)}, **fields)


def products(pod):
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return [(each["key"], each["operator"], each["values"]) for term in terms for each in term["matchExpressions"]]


# Modes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "slice_"), [(("mig", "mps"), "mig-3g.20gb"), (("mps", "mig"), "gpu-20gb"), (("mps",), "gpu-20gb")]
)
def test_the_order_of_modes_is_the_policys(modes, slice_):
    assert given(asks("0.5"), under(modes=modes)) == {slice_: "1"}


def test_a_forged_record_does_not_make_a_slice_of_a_mode_that_the_policy_does_not_allow():
    """W35: nobody answers a wish but us, and what we answer lies within the policy."""
    entry = {"asked": {GPU: "500m"}, "given": {"nvidia.com/gpu-20gb": "1"}, "mode": "mps"}
    raw = raw_pod(
        limits={"nvidia.com/gpu-20gb": "1"},
        annotations={names.RECORD: json.dumps({"v": 1, "containers": {"main": entry}})},
    )
    (fault,) = review(raw, under(modes=("mig",), nameable=("mig",))).faults
    assert "nvidia.com/gpu-20gb is made by mps: the policy allows mig" in fault


# Whole GPUs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole", "amount", "slices"),
    [
        pytest.param(None, 2, {"gpu": "2"}, id="kept"),
        pytest.param(read_share("1/2"), 1, {"mig-3g.20gb": "1"}, id="a share"),
        pytest.param(read_share("1/2"), 2, {"mig-3g.20gb": "2"}, id="two GPUs are two slices"),
        pytest.param(read_memory("10GB"), 3, {"mig-1g.10gb": "3"}, id="memory"),
        pytest.param(read_memory("10GB"), 0, {"gpu": "0"}, id="none is left alone"),
    ],
)
def test_what_becomes_of_whole_gpus(whole, amount, slices):
    assert given(gpus(amount), under(whole_gpu=whole)) == slices


def test_a_pods_modes_steer_what_its_whole_gpus_become():
    raw = raw_pod(limits={GPU: "1"}, annotations={names.MODE: "mps"})
    assert given(raw, under(whole_gpu=read_share("0.5"))) == {"gpu-20gb": "1"}


def test_the_record_of_a_whole_gpu_says_what_was_asked():
    note = admitted(gpus(2), under(whole_gpu=read_share("0.5")))["metadata"]["annotations"][names.RECORD]
    assert json.loads(note)["containers"]["main"] == {
        "asked": {GPU: "2"},
        "given": {"nvidia.com/mig-3g.20gb": "2"},
        "mode": "mig",
        "model": A100,
    }


def test_two_gpus_pass_mps_over_where_mig_is_left():
    found = review(gpus(2), under(modes=("mps", "mig"), whole_gpu=read_memory("10GB")))
    assert found.warnings[0].startswith("mps is passed over: spec.containers[0].resources.limits[nvidia.com/gpu]: 2: ")
    assert found.warnings[1].startswith("nvidia.com/gpu 2 -> nvidia.com/mig-1g.10gb ")


@pytest.mark.parametrize(
    ("raw", "fields", "fault"),
    [
        pytest.param(gpus(1), {"whole_gpu": "deny"},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: 1: the policy lets no pod have a whole GPU "
                     '(wholeGpu: deny): ask for a part, for example nos.nebuly.com/gpu-fraction: "0.5"', id="denied"),
        pytest.param(gpus(2), {"modes": ("mps",), "whole_gpu": read_memory("10GB")},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: 2: an MPS client talks to one daemon, so a "
                     "container gets one slice: ask for one larger slice, or give each a container of its own",
                     id="two GPUs, and no other mode than MPS"),
        pytest.param(gpus(1), {"limits": limits(most="0.5")},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: 1: a whole GPU is more than the policy allows, "
                     '0.5 (maxFraction): ask for a part, for example nos.nebuly.com/gpu-fraction: "0.5"', id="above a limit"),
        pytest.param(raw_pod(limits={GPU: "1"}, annotations={names.MODE: "mig"}), {},
                     "metadata.annotations[nos.nebuly.com/gpu-mode]: mig: chooses for nothing: the pod asks for no part of a "
                     "GPU", id="a mode for what is kept whole"),
    ],
)  # fmt: skip
def test_whole_gpus_that_a_policy_does_not_allow(raw, fields, fault):
    assert review(raw, under(**fields)).faults == (fault,)


# Models ---------------------------------------------------------------------------------------------------------------


def test_a_pod_is_kept_to_the_models_of_the_policy_also_where_the_name_would_say_enough():
    pod = admitted(asks("0.5"), under(gpu_models=(A100_80,)), MIG, MIG_80)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-3g.40gb": "1"}
    assert products(pod) == [(names.PRODUCT_LABEL, "In", [A100_80])]


def test_a_wish_resolves_for_a_model_that_is_not_there_yet_and_waits_for_it():
    pod = admitted(asks("0.25"), under(gpu_models=(A100, A100_80)), make_node("cpu", None, mode=None))
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert products(pod) == [(names.PRODUCT_LABEL, "In", [A100])]  # on the other, 1g.10gb is a seventh
    assert pod["spec"]["schedulingGates"] == [{"name": names.GATE}]


def test_boards_that_are_there_come_before_those_that_may_yet_come():
    """The 80 GB boards would come cheaper, but are not there."""
    assert given(asks("10Gi", MEMORY), under(gpu_models=(A100, A100_80)), MIG) == {"mig-3g.20gb": "1"}


def test_an_explicit_slice_may_be_one_that_only_a_model_of_the_policy_makes():
    pod = admitted(gpus(1, "nvidia.com/mig-1g.6gb"), under(gpu_models=(A30,)), MIG)
    assert products(pod) == [(names.PRODUCT_LABEL, "In", [A30])]


def test_models_that_the_users_own_selection_rules_out_do_not_come():
    (fault,) = review(asks("0.5", nodeSelector={names.PRODUCT_LABEL: A100}), under(gpu_models=(A30,)), MIG).faults
    assert fault.endswith("; the policy allows only NVIDIA-A30 (gpuModels), and the pod may use no board of these")


def test_a_narrower_choice_of_the_user_stays_as_it_is():
    only = {"key": names.PRODUCT_LABEL, "operator": "In", "values": [A100]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [only]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = admitted(asks("0.5", affinity=affinity), under(gpu_models=(A100, A30)), MIG)
    assert pod["spec"]["affinity"] == affinity


def test_what_an_agent_has_discovered_of_a_model_wins_over_the_table():
    """A board of that product is here, though the pod may not use it: it names its slices as those to come will."""
    profile = {"name": "1g.11gb", "id": 1, "compute": 1, "memoryUnits": 1, "memoryMiB": 9000, "starts": [0]}
    inventory = [
        {
            "index": 0,
            "uuid": "GPU-0",
            "model": A100,
            "memoryMiB": 80000,
            "migCapable": True,
            "mig": True,
            "profiles": [profile],
        }
    ]
    other = make_node(
        "x", annotations={names.INVENTORY: json.dumps(inventory)}, taints=[{"key": "k", "effect": "NoSchedule"}]
    )
    assert given(asks("0.1"), under(gpu_models=(A100,)), other) == {"mig-1g.11gb": "1"}


def test_a_slice_given_for_a_model_to_come_stays_ours_though_so_far_only_others_announce_it():
    """Found by a law: reviewed again, it was taken for another plugin's beside an annotation of ours."""
    other = make_node("other", mode=None, resources={"nvidia.com/mig-1g.10gb": "2"})
    assert given(asks("0.25"), under(gpu_models=(A100,)), other) == {"mig-1g.10gb": "1"}


def test_a_slice_of_our_boards_does_not_become_another_plugins_because_the_policy_names_other_models():
    """Else it would pass by the gate and the policy, and be bound to the very boards that the policy rules out."""
    other = make_node("other", A30, mode=None, resources={"nvidia.com/mig-1g.6gb": "2"})
    (fault,) = review(
        gpus(1, "nvidia.com/mig-1g.6gb"), under(gpu_models=(A100,)), MIG, make_node("ours", A30), other
    ).faults
    assert "no board makes 1g.6gb; NVIDIA-A100-SXM4-40GB makes 1g.5gb, " in fault


# Rounding -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "node", "slice_"),
    [
        (SHARE, "0.5", MIG, "mig-3g.20gb"), (SHARE, "1/2", MIG, "mig-3g.20gb"), (SHARE, "0.29", MIG, "mig-2g.10gb"), (SHARE, "2/7", MIG, "mig-2g.10gb"),
        (SHARE, "0.57", MIG, "mig-4g.20gb"), (SHARE, "0.14", MIG, "mig-1g.5gb"), (SHARE, "1", MIG, "mig-7g.40gb"),
        (MEMORY, "10GB", MIG, "mig-1g.10gb"), (MEMORY, "9856Mi", MIG, "mig-1g.10gb"),
        (SHARE, "0.25", MPS, "gpu-10gb"), (SHARE, "1/8", MPS, "gpu-5gb"), (MEMORY, "7GB", MPS, "gpu-7gb"), (MEMORY, "7Gi", MPS, "gpu-7gb"),
        (SHARE, "0.5", TURNS, "gpu.shared"),
    ],
)  # fmt: skip
def test_exact_gives_what_equals_the_request(key, text, node, slice_):
    assert given(asks(text, key), under(exact=True, modes=names.MODES), node) == {slice_: "1"}


@pytest.mark.parametrize(
    ("key", "text", "node", "nearest"),
    [
        (SHARE, "0.45", MIG, "mig-3g.20gb"), (SHARE, "0.43", MIG, "mig-3g.20gb"), (SHARE, "0.13", MIG, "mig-1g.5gb"), (SHARE, "0.8", MIG, "mig-7g.40gb"),
        (MEMORY, "12GB", MIG, "mig-1g.10gb"), (MEMORY, "15GB", MIG, "mig-3g.20gb"), (MEMORY, "9.6Gi", MIG, "mig-1g.10gb"), (MEMORY, "4700Mi", MIG, "mig-1g.5gb"),
        (SHARE, "0.33", MPS, "gpu-13gb"), (SHARE, "0.01", MPS, "gpu-1gb"), (SHARE, "0.3375", MPS, "gpu-14gb"), (MEMORY, "2.5GB", MPS, "gpu-3gb"),
        (MEMORY, "2600Mi", MPS, "gpu-3gb"),
    ],
)  # fmt: skip
def test_exact_denies_what_would_be_rounded_naming_the_nearest(key, text, node, nearest):
    assert review(asks(text, key), under(exact=True), node).faults == (
        f"metadata.annotations[{key}]: {text}: the policy rounds nothing, and no slice of {A100} is exactly that: "
        f"the nearest is nvidia.com/{nearest}",
    )


def test_exact_takes_the_next_mode_if_that_has_it_and_says_so():
    found = review(asks("0.45"), under(exact=True))
    assert [warning.partition(":")[0] for warning in found.warnings] == [
        "mig is passed over",
        "nos.nebuly.com/gpu-fraction 0.45 -> nvidia.com/gpu-18gb (18 GiB of NVIDIA-A100-SXM4-40GB); memory limit per "
        "process, no fault isolation",
        "main runs as user 1000 and spec.hostIPC is set, as clients of MPS must",
    ]


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "bounds", "node", "slices"),
    [
        pytest.param(asks("0.05"), limits("0.1", "0.25"), MIG, {"mig-1g.5gb": "1"}, id="what is given counts, an eighth"),
        pytest.param(asks("0.29"), limits("0.1", "0.25"), MIG, {"mig-2g.10gb": "1"}, id="memory counts, not compute"),
        pytest.param(asks("0.33"), limits("0.33", "0.33"), MPS, {"gpu-13gb": "1"}, id="at the precision of the limit"),
        pytest.param(asks("1/3"), limits("0.33", "0.33"), make_node("a30", A30, mode="mps"), {"gpu-8gb": "1"}, id="8 of 24 too"),
        pytest.param(asks("0.25"), limits("0.25"), MPS, {"gpu-10gb": "1"}, id="at the least"),
        pytest.param(gpus(2, "nvidia.com/mig-1g.5gb"), limits(slices=2), MIG, {"mig-1g.5gb": "2"}, id="as many as may be"),
        pytest.param(asks("0.5"), limits("0.25", "0.25"), TURNS, {"gpu.shared": "1"}, id="a turn is one of four"),
    ],
)  # fmt: skip
def test_what_is_within_the_limits_is_given(raw, bounds, node, slices):
    assert given(raw, under(modes=names.MODES, limits=bounds), node) == slices


@pytest.mark.parametrize(
    ("raw", "bounds", "node", "fault"),
    [
        pytest.param(asks("0.3"), limits(most="0.25"), MIG,
                     f"metadata.annotations[{SHARE}]: 0.3: nvidia.com/mig-3g.20gb is 1/2 of the memory of {A100}, and the "
                     "policy allows no more than 0.25", id="a share"),
        pytest.param(asks("15GB", MEMORY), limits(most="0.25"), MIG,
                     f"metadata.annotations[{MEMORY}]: 15GB: nvidia.com/mig-3g.20gb is 1/2 of the memory of {A100}, and the "
                     "policy allows no more than 0.25", id="memory"),
        pytest.param(gpus("500m"), limits(most="0.25"), MPS,
                     f"spec.containers[0].resources.limits[{GPU}]: 500m: nvidia.com/gpu-20gb is 1/2 of the memory of {A100}, "
                     "and the policy allows no more than 0.25", id="a resource"),
        pytest.param(gpus(1, "nvidia.com/gpu-3gb"), limits("0.1"), MPS,
                     f"spec.containers[0].resources.limits[nvidia.com/gpu-3gb]: 1: nvidia.com/gpu-3gb is 3/40 of the memory "
                     f"of {A100}, and the policy allows no less than 0.1", id="an explicit slice"),
        pytest.param(gpus(3, "nvidia.com/mig-1g.5gb"), limits(slices=2), MIG,
                     "spec: 3 slices: the policy lets a pod have 2 at most (maxSlicesPerPod)", id="too many in one container"),
        pytest.param(raw_pod(init=[container("i", limits={GPU: "500m"})], limits={GPU: "500m"}), limits(slices=1), MIG,
                     "spec: 2 slices: the policy lets a pod have 1 at most (maxSlicesPerPod)", id="too many in several"),
    ],
)  # fmt: skip
def test_what_is_beyond_the_limits_is_denied_whatever_its_form(raw, bounds, node, fault):
    assert review(raw, under(limits=bounds), node).faults == (fault,)


def test_a_slice_whose_share_depends_on_the_model_is_kept_to_those_where_it_is_within_the_limits():
    """1g.10gb is a quarter of an A100-40 and an eighth of an A100-80."""
    pod = admitted(gpus(1, "nvidia.com/mig-1g.10gb"), under(limits=limits(most="0.2")), MIG, MIG_80)
    assert products(pod) == [(names.PRODUCT_LABEL, "In", [A100_80])]


def test_a_slice_of_boards_that_nobody_knows_is_bounded_by_what_it_is_anywhere():
    node = make_node("n", "unheard-of", resources={"nvidia.com/mig-3g.20gb": "2"})
    assert review(gpus(1, "nvidia.com/mig-3g.20gb"), under(limits=limits(most="0.25")), node).faults
    assert given(gpus(1, "nvidia.com/mig-3g.20gb"), under(limits=limits(most="0.5")), node) == {"mig-3g.20gb": "1"}


# MPS ------------------------------------------------------------------------------------------------------------------

THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@pytest.mark.parametrize(
    ("raw", "nodes", "percent"),
    [
        pytest.param(asks("0.25"), (MPS,), "25", id="a quarter"),
        pytest.param(asks("0.33"), (MPS,), "33", id="13 of 40, rounded up"),
        pytest.param(gpus(1, "nvidia.com/gpu-10gb"), (MPS_80,), "13", id="10 of 80, rounded up"),
        pytest.param(gpus(1, "nvidia.com/gpu-10gb"), (MPS, MPS_80), "25", id="what it is at most"),
        pytest.param(asks("10GB", MEMORY), (MPS, MPS_80), "25", id="memory, likewise"),
        pytest.param(asks("1"), (MPS,), "100", id="all"),
    ],
)
def test_proportional_threads_are_the_slices_share_rounded_up(raw, nodes, percent):
    pod = admitted(raw, under(modes=("mps",), proportional_threads=True), *nodes)
    assert pod["spec"]["containers"][0]["env"] == [{"name": THREADS, "value": percent}]


def test_threads_are_added_to_what_the_container_has_and_to_clients_only():
    raw = raw_pod(
        containers=[container("a", env={"X": "1"}, limits={"nvidia.com/gpu-10gb": "1"}), container("b")],
        init=[container("i")],
    )
    spec = admitted(raw, under(proportional_threads=True), MPS)["spec"]
    assert spec["containers"][0]["env"] == [{"name": "X", "value": "1"}, {"name": THREADS, "value": "25"}]
    assert "env" not in spec["containers"][1]
    assert "env" not in spec["initContainers"][0]
    assert (
        "env"
        not in admitted(gpus(1, "nvidia.com/mig-1g.5gb"), under(proportional_threads=True), MIG)["spec"]["containers"][
            0
        ]
    )


def test_threads_of_the_users_own_are_denied_unless_they_are_what_we_would_set():
    """W06."""

    def client(percent):
        return raw_pod(containers=[container(env={THREADS: percent}, limits={"nvidia.com/gpu-10gb": "1"})])

    rule = {"proportional_threads": True}
    (fault,) = review(client("100"), under(**rule), MPS).faults
    assert fault.startswith(f"spec.containers[0].env[0]: {THREADS}=100: would reach beyond the slices of this pod")
    assert admitted(client("25"), under(**rule), MPS)
    spec = admitted(client("100"), under(visible_devices=True, **rule), MPS)["spec"]
    assert spec["containers"][0]["env"] == [{"name": THREADS, "value": "100"}]


@pytest.mark.parametrize(
    ("host_ipc", "told"),
    [
        (True, "main runs as user 1000 and spec.hostIPC is set, as clients of MPS must"),
        (False, "main runs as user 1000, as clients of MPS must"),
    ],
)
def test_who_asks_for_memory_of_an_mps_board_is_told_what_is_set_for_it(host_ipc, told):
    """W31: what is chosen, and fields that the user never wrote; A22: what the slice limits, said once."""
    raw = raw_pod(annotations={MEMORY: "8GB", names.MODE: "mps"})
    assert review(raw, under(host_ipc=host_ipc), MPS).warnings == (
        f"{MEMORY} 8GB -> nvidia.com/gpu-8gb (8 GiB of {A100}); memory limit per process, no fault isolation",
        told,
    )


def test_who_asks_for_an_mps_slice_by_name_is_told_what_is_set_for_it():
    """W31: fields that the user never wrote."""
    raw = gpus(1, "nvidia.com/gpu-10gb")
    told = "; memory limit per process, no fault isolation"
    assert review(raw, under(), MPS).warnings == (
        f"main runs as user 1000 and spec.hostIPC is set, as clients of MPS must{told}",
    )
    assert review(raw, under(host_ipc=False), MPS).warnings == (
        f"main runs as user 1000, as clients of MPS must{told}",
    )
    assert review(gpus(1, "nvidia.com/mig-1g.5gb"), under(), MIG).warnings == ()
    assert review(admitted(raw, under(), MPS), under(), MPS).warnings == ()


def test_of_an_mps_slice_of_a_board_before_volta_is_said_that_nothing_is_limited():
    """docs/adr/0033."""
    older = make_node(product="Tesla-P100-PCIE-16GB", mode="mps")
    assert review(gpus(1, "nvidia.com/gpu-8gb"), under(), older).warnings == (
        "main runs as user 1000 and spec.hostIPC is set, as clients of MPS must; "
        "nothing is limited: neither memory nor compute, no fault isolation",
    )


# Devices --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "policy", "denied"),
    [
        pytest.param({}, under(), True, id="own policy, no GPU"),
        pytest.param({"limits": {GPU: "1"}}, under(), True, id="own policy, whole GPU"),
        pytest.param({}, under(visible_devices=True), False, id="own policy that allows it"),
        pytest.param({}, PolicyView(namespace="apportion-system", name="default"), False, id="the default policy"),
        pytest.param({}, PolicyView(), False, id="no policy"),
    ],
)
def test_visible_devices_hold_for_any_pod_where_a_policy_is_the_namespaces_own(raw, policy, denied):
    """W06."""
    pod = raw_pod(
        containers=[container(env={"A": "b", "NVIDIA_VISIBLE_DEVICES": "all", "CUDA_MPS_PIPE_DIRECTORY": "/x"}, **raw)]
    )
    faults = review(pod, policy).faults
    assert bool(faults) == denied
    assert not denied or faults[0].startswith(
        "spec.containers[0].env[1]: NVIDIA_VISIBLE_DEVICES=all: would show GPUs that"
    )
    assert len(faults) <= 1  # a directory of MPS harms nobody without a slice


# Invalid policies -----------------------------------------------------------------------------------------------------

BROKEN = PolicyView(namespace="team-a", name="p", faults=("spec.rules: 1: wrong", "spec.rule: 2: wrong too"))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(asks("0.5"), id="share"), pytest.param(gpus(1), id="whole"), pytest.param(gpus("500m"), id="resource"),
        pytest.param(gpus(1, "nvidia.com/mig-1g.5gb"), id="slice"),
    ],
)  # fmt: skip
def test_who_asks_for_a_gpu_under_a_faulty_policy_is_denied_with_all_its_faults(raw):
    assert review(raw, BROKEN).faults == (
        "GpuPolicy team-a/p: spec.rules: 1: wrong",
        "GpuPolicy team-a/p: spec.rule: 2: wrong too",
    )


def test_the_pods_own_faults_are_told_beside_those_of_the_policy():
    faults = review(asks("2"), BROKEN).faults
    assert [fault.partition(":")[0] for fault in faults] == [
        f"metadata.annotations[{SHARE}]",
        *["GpuPolicy team-a/p"] * 2,
    ]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(raw_pod(), id="nothing"),
        pytest.param(gpus(1, "nvidia.com/mig-9g.9gb"), id="slice of another plugin"),
    ],
)
def test_who_asks_for_no_gpu_of_ours_is_not_disturbed_by_a_faulty_policy(raw):
    other = make_node("other", mode=None, resources={"nvidia.com/mig-9g.9gb": "1"})
    assert review(raw, BROKEN, MIG, other).faults == ()


# Quota by label -------------------------------------------------------------------------------------------------------

LABEL = PolicyView(namespace="team-a", name="p", gates=False)
GATE = {"name": names.GATE}


def standings(*quotas, used=0):
    return Standings.of(quotas, {quotas[0].title: {GPU: used * 1000}})


@pytest.mark.parametrize(
    ("used", "capacity", "warnings"),
    [
        (0, "in-quota", ()),
        (1, "over-quota", ("is 1 nvidia.com/gpu above the min of team-a/quota; may be evicted",)),
    ],
)
def test_where_the_policy_only_labels_a_governed_pod_is_not_held(used, capacity, warnings):
    whole = make_node("whole", mode=None, resources={GPU: "8"})
    found = review(gpus(1), LABEL, MIG, whole, standings=standings(quota("team-a", 1, 1), used=used))
    pod = patched(gpus(1), found)
    assert pod["metadata"]["labels"] == {"nos.nebuly.com/capacity": capacity}
    assert "schedulingGates" not in pod["spec"]
    assert found.warnings == warnings


def test_a_slice_is_waited_for_all_the_same():
    pod = admitted(asks("0.5"), LABEL, standings=standings(quota("team-a", 1)))
    assert pod["spec"]["schedulingGates"] == [GATE]


def test_nothing_that_is_only_labelled_can_never_run():
    assert review(gpus(5), LABEL, standings=standings(quota("team-a", 1, 1))).faults == ()
    assert review(gpus(5), PolicyView(), standings=standings(quota("team-a", 1, 1))).faults


def test_a_labelled_pod_may_name_its_node_for_no_gate_is_passed_by():
    governed = standings(quota("team-a", 1))
    assert review(gpus(1, node="n1"), LABEL, standings=governed).faults == ()
    assert review(gpus(1, node="n1"), PolicyView(), standings=governed).faults


def test_of_a_quota_with_a_fault_a_labelled_pod_bears_no_label():
    broken = standings(replace(quota("team-a", 1), faults=("spec.min: nonsense",)))
    assert review(gpus(1), LABEL, standings=broken).patch == ()
