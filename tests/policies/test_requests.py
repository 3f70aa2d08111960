"""What the containers of a pod ask for, in every form, and every fault of it at once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import names
from policies.requests import Slice, read_requests
from policies.shares import MEMORY_RULE, SHARE_RULE, Memory, Share
from tests.builders import container, make_pod

FRACTION, MEMORY, COUNT, MODE, CONTAINER = (
    "nos.nebuly.com/gpu-fraction", "nos.nebuly.com/gpu-memory", "nos.nebuly.com/gpu-count", "nos.nebuly.com/gpu-mode",
    "nos.nebuly.com/gpu-container",
)  # fmt: skip


def wishes(pod, foreign=()):
    found = read_requests(pod, foreign)
    assert found.faults == ()
    return [(wish.place.container.name, wish.ask, wish.count, wish.asked) for wish in found.wishes]


def faults(foreign=(), **fields):
    found = read_requests(make_pod(**fields), foreign)
    assert found.faults
    return list(found.faults)


@pytest.mark.parametrize(
    ("fields", "ask", "asked"),
    [
        pytest.param({"annotations": {FRACTION: "0.25"}}, Share(1, 4, 2), {FRACTION: "0.25"}, id="share by annotation"),
        pytest.param({"annotations": {FRACTION: "1/7"}}, Share(1, 7), {FRACTION: "1/7"}, id="ratio"),
        pytest.param({"annotations": {MEMORY: "10Gi"}}, Memory(10240, 1, real=True), {MEMORY: "10Gi"}, id="real memory"),
        pytest.param({"annotations": {MEMORY: "10"}}, Memory(10, 1, real=False), {MEMORY: "10"}, id="nominal memory"),
        pytest.param({"annotations": {f"{FRACTION}.main": "0.5"}}, Share(1, 2, 2), {f"{FRACTION}.main": "0.5"}, id="share for a container"),
        pytest.param({"limits": {"nvidia.com/gpu": "500m"}}, Share(1, 2, 2), {"nvidia.com/gpu": "500m"}, id="share in limits"),
        pytest.param({"requests": {"nvidia.com/gpu": "500m"}}, Share(1, 2, 2), {"nvidia.com/gpu": "500m"}, id="share in requests"),
        pytest.param({"limits": {"nvidia.com/mig-1g.5gb": "1"}}, Slice("nvidia.com/mig-1g.5gb", "mig"),
                     {"nvidia.com/mig-1g.5gb": "1"}, id="MIG slice"),
        pytest.param({"limits": {"nvidia.com/gpu-10gb": 1}}, Slice("nvidia.com/gpu-10gb", "mps"), {"nvidia.com/gpu-10gb": "1"}, id="MPS slice"),
        pytest.param({"limits": {"nvidia.com/gpu.shared": 1}}, Slice("nvidia.com/gpu.shared", "timeslicing"),
                     {"nvidia.com/gpu.shared": "1"}, id="time slice"),
    ],
)  # fmt: skip
def test_every_form_of_a_request(fields, ask, asked):
    assert wishes(make_pod(**fields)) == [("main", ask, 1, asked)]


def test_a_count_belongs_to_the_wish_of_its_container():
    pod = make_pod(
        annotations={FRACTION: "0.4", COUNT: "2", f"{MEMORY}.b": "5GB", f"{COUNT}.b": "3"},
        containers=[container("a"), container("b")],
    )
    assert wishes(pod) == [
        ("a", Share(2, 5, 2), 2, {FRACTION: "0.4", COUNT: "2"}),
        ("b", Memory(5, 1, real=False), 3, {f"{MEMORY}.b": "5GB", f"{COUNT}.b": "3"}),
    ]


def test_containers_of_every_kind_are_visited_by_their_own_index():
    """W01, W03."""
    pod = make_pod(
        init=[container("warm", limits={"nvidia.com/gpu": "0.5"}), container("side", limits={"nvidia.com/gpu": "0.25"}, restartPolicy="Always")],
        containers=[container("logger"), container("train", limits={"nvidia.com/mig-1g.5gb": "1"})],
    )  # fmt: skip
    assert [(wish.place.path, wish.path) for wish in read_requests(pod).wishes] == [
        ("spec.initContainers[0]", "spec.initContainers[0].resources.limits[nvidia.com/gpu]"),
        ("spec.initContainers[1]", "spec.initContainers[1].resources.limits[nvidia.com/gpu]"),
        ("spec.containers[1]", "spec.containers[1].resources.limits[nvidia.com/mig-1g.5gb]"),
    ]


def test_an_annotation_may_name_an_init_container():
    """W01."""
    pod = make_pod(annotations={FRACTION: "0.5", CONTAINER: "warm"}, init=[container("warm")])
    assert wishes(pod) == [("warm", Share(1, 2, 2), 1, {FRACTION: "0.5"})]


@pytest.mark.parametrize(
    "limits",
    [
        None,
        {},
        {"cpu": "1"},
        {"nvidia.com/gpu": "0"},
        {"nvidia.com/mig-1g.5gb": "0"},
        {"nvidia.com/gpumem": "3000"},
        {"nvidia.com/other": "1"},
    ],
)
def test_what_asks_for_no_gpu_is_no_wish(limits):
    found = read_requests(make_pod(limits=limits))
    assert (found.wishes, found.left, found.faults) == ((), (), ())


@pytest.mark.parametrize("count", ["1", "2000m", 8])
def test_whole_gpus_are_left_as_they_are(count):
    found = read_requests(make_pod(limits={"nvidia.com/gpu": count}))
    assert (found.wishes, found.faults, found.left) == ((), (), (f"main: nvidia.com/gpu {count}",))


def test_slices_of_another_plugin_are_not_looked_at():
    foreign = {"nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-1g.5gb.shared"}
    pod = make_pod(
        limits={"nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-2g.10gb": "1", "nvidia.com/mig-1g.5gb.shared": 1}
    )
    found = read_requests(pod, foreign)
    assert (found.wishes, found.faults) == ((), ())
    assert len(found.left) == 1


@pytest.mark.parametrize(("text", "modes"), [("mig", ("mig",)), ("mps,mig", ("mps", "mig")), ("mig, timeslicing", ("mig", "timeslicing")), ("mig,mig", ("mig",))])  # fmt: skip
def test_modes_are_an_ordered_list(text, modes):
    assert read_requests(make_pod(annotations={FRACTION: "0.5", MODE: text})).modes == modes
    assert read_requests(make_pod(annotations={MODE: text}, limits={"nvidia.com/gpu": "0.5"})).modes == modes


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"annotations": {FRACTION: "1.5"}}, f"metadata.annotations[{FRACTION}]: 1.5: {SHARE_RULE}", id="share above one"),
        pytest.param({"annotations": {f"{FRACTION}.main": "0"}}, f"metadata.annotations[{FRACTION}.main]: 0: {SHARE_RULE}", id="share of zero"),
        pytest.param({"annotations": {MEMORY: "2000mb"}}, f"metadata.annotations[{MEMORY}]: 2000mb: {MEMORY_RULE}", id="W39 unit"),
        pytest.param({"annotations": {FRACTION: "0.2", COUNT: "1.2"}},
                     f"metadata.annotations[{COUNT}]: 1.2: a count is a whole number of at least 1", id="count not whole"),
        pytest.param({"annotations": {FRACTION: "0.2", COUNT: "0"}},
                     f"metadata.annotations[{COUNT}]: 0: a count is a whole number of at least 1", id="count of zero"),
        pytest.param({"annotations": {FRACTION: "0.2", COUNT: "9" * 5000}},
                     f"metadata.annotations[{COUNT}]: {'9' * 77}...: a count is a whole number of at least 1", id="count of 5000 digits"),
        pytest.param({"annotations": {COUNT: "2"}},
                     f"metadata.annotations[{COUNT}]: 2: counts nothing: write {FRACTION} or {MEMORY} as well", id="count alone"),
        pytest.param({"annotations": {MODE: "mig"}},
                     f"metadata.annotations[{MODE}]: mig: chooses for nothing: the pod asks for no part of a GPU", id="mode alone"),
        pytest.param({"annotations": {FRACTION: "0.2", MODE: "mgi"}},
                     f"metadata.annotations[{MODE}]: mgi: a mode is one of mig, mps, timeslicing; several, in order of preference, with commas",
                     id="mode unknown"),
        pytest.param({"annotations": {FRACTION: "0.2", CONTAINER: "trainr"}},
                     f"metadata.annotations[{CONTAINER}]: trainr: no container has that name: the pod has main", id="container unknown"),
        pytest.param({"annotations": {f"{FRACTION}.trainr": "0.2"}},
                     f"metadata.annotations[{FRACTION}.trainr]: 0.2: no container has that name: the pod has main", id="container of a key unknown"),
        pytest.param({"annotations": {f"{MODE}.main": "mig", FRACTION: "0.2"}},
                     f"metadata.annotations[{MODE}.main]: mig: {MODE} holds for the whole pod: leave .main out", id="mode for a container"),
        pytest.param({"annotations": {FRACTION: "0.5", MEMORY: "1"}},
                     f"metadata.annotations: {FRACTION} and {MEMORY}: one container asks once, for a share or for memory: keep one of them",
                     id="share and memory"),
        pytest.param({"annotations": {FRACTION: "0.5", f"{FRACTION}.main": "0.5"}},
                     f"metadata.annotations: {FRACTION} and {FRACTION}.main: one container asks once, for a share or for memory: keep one of them",
                     id="twice for one container"),
        pytest.param({"annotations": {FRACTION: "0.5"}, "limits": {"nvidia.com/gpu": "2m"}},
                     f"metadata.annotations[{FRACTION}]: 0.5: container main asks for nvidia.com/gpu 2m too: keep one of them",
                     id="annotation beside a resource"),
        pytest.param({"annotations": {COUNT: "2"}, "limits": {"nvidia.com/gpu": "0.5"}},
                     f"metadata.annotations[{COUNT}]: 2: container main asks for nvidia.com/gpu 0.5 too: keep one of them",
                     id="count beside a resource"),
        pytest.param({"annotations": {FRACTION: "0.5"}, "limits": {"nvidia.com/mig-1g.5gb": "1"}},
                     f"metadata.annotations[{FRACTION}]: 0.5: container main asks for nvidia.com/mig-1g.5gb 1 too: keep one of them",
                     id="annotation beside a slice"),
        pytest.param({"annotations": {"nos.nebuly.com/gpu-fractoin": "0.5"}},
                     f"metadata.annotations[nos.nebuly.com/gpu-fractoin]: 0.5: there is no such key: write {FRACTION}", id="W34 annotation"),
        pytest.param({"annotations": {"nos.nebuly.com/gpu-memry.main": "1"}},
                     f"metadata.annotations[nos.nebuly.com/gpu-memry.main]: 1: there is no such key: write {MEMORY}.main", id="W34 container key"),
        pytest.param({"annotations": {names.NON_PREEMPTIBLE: "True"}},
                     f'metadata.annotations[{names.NON_PREEMPTIBLE}]: True: a pod with "true" borrows nothing and is never evicted; '
                     'write that, or "false"', id="evicted all the same"),
        pytest.param({"limits": {"nvidia.com/gpu-10gib": "1"}},
                     "spec.containers[0].resources.limits[nvidia.com/gpu-10gib]: 1: there is no such resource: write nvidia.com/gpu-10gb",
                     id="W34 MPS slice"),
        pytest.param({"requests": {"nvidia.com.gpu": "1"}},
                     "spec.containers[0].resources.requests[nvidia.com.gpu]: 1: there is no such resource: write nvidia.com/gpu", id="W34 dot"),
        pytest.param({"limits": {"nos.nebuly.com/gpu-memory": "10"}},
                     "spec.containers[0].resources.limits[nos.nebuly.com/gpu-memory]: 10: counts in quotas only: "
                     f"ask by an annotation of the pod, for example {MEMORY}: 10Gi", id="quota resource"),
        pytest.param({"limits": {"nvidia.com/gpu": "1500m"}},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: 1500m: ask for whole GPUs, or for a share of one above 0 and below 1: "
                     "write for example 2, 0.5 or 250m", id="resource above one"),
        pytest.param({"limits": {"nvidia.com/gpu": "-1"}},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: -1: ask for whole GPUs, or for a share of one above 0 and below 1: "
                     "write for example 2, 0.5 or 250m", id="resource negative"),
        pytest.param({"limits": {"nvidia.com/gpu": "0.0000000001"}},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: 0.0000000001: ask for whole GPUs, or for a share of one above 0 and "
                     "below 1: write for example 2, 0.5 or 250m", id="ten decimals"),
        pytest.param({"limits": {"nvidia.com/gpu": "half"}},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: 'half' is not a quantity; write for example 2, 500m or 4Gi", id="no quantity"),
        pytest.param({"limits": {"nvidia.com/mig-1g.5gb": "0.5"}},
                     "spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]: 0.5: slices are whole: write for example 1", id="part of a slice"),
        pytest.param({"limits": {"nvidia.com/gpu": "0.5"}, "requests": {"nvidia.com/gpu": "0.25"}},
                     "spec.containers[0].resources.limits[nvidia.com/gpu]: 0.5: the request is 0.25: write the same in limits and requests",
                     id="limits and requests differ"),
        pytest.param({"limits": {"nvidia.com/gpu-10gb": "1", "nvidia.com/gpu-5gb": "1"}},
                     "spec.containers[0].resources: nvidia.com/gpu-10gb 1, nvidia.com/gpu-5gb 1: devices of two kinds collide in one container: "
                     "give each a container of its own", id="two slices in a container"),
        pytest.param({"limits": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "1"}},
                     "spec.containers[0].resources: nvidia.com/gpu 1, nvidia.com/mig-1g.5gb 1: devices of two kinds collide in one container: "
                     "give each a container of its own", id="a whole GPU and a slice"),
    ],
)  # fmt: skip
def test_a_fault_names_place_value_and_way_out(fields, told):
    assert faults(**fields) == [told]


def test_limits_and_requests_may_be_written_differently():
    pod = make_pod(limits={"nvidia.com/gpu": "0.5"}, requests={"nvidia.com/gpu": "500m"})
    assert wishes(pod) == [("main", Share(1, 2, 2), 1, {"nvidia.com/gpu": "0.5"})]


def test_all_faults_are_told_at_once():
    told = faults(
        annotations={FRACTION: "1.5", MEMORY: "10Gi", COUNT: "0", CONTAINER: "trainr"},
        limits={"nvidia.com/gpu-10g": "1"},
    )
    assert [text.split(": ")[0] for text in told] == [
        f"metadata.annotations[{CONTAINER}]", f"metadata.annotations[{FRACTION}]", f"metadata.annotations[{COUNT}]", "metadata.annotations",
        "spec.containers[0].resources.limits[nvidia.com/gpu-10g]",
    ]  # fmt: skip


def test_a_slice_of_another_plugin_beside_a_wish_collides():
    told = faults(foreign={"nvidia.com/mig-1g.5gb"}, limits={"nvidia.com/mig-1g.5gb": "1", "nvidia.com/gpu-5gb": "1"})
    assert "collide" in told[0]
    told = faults(
        foreign={"nvidia.com/mig-1g.5gb"}, limits={"nvidia.com/mig-1g.5gb": "1"}, annotations={FRACTION: "0.5"}
    )
    assert "keep one of them" in told[0]


def test_what_is_noticed_without_harm_is_a_warning():
    found = read_requests(
        make_pod(
            annotations={CONTAINER: "main", "nos.nebuly.com/team": "x", "gpu-fraction": "0.5"},
            limits={"nvidia.com/gpumem": "3000"},
        )
    )
    assert found.faults == ()
    assert found.warnings == (
        'gpu-fraction is a key of KAI and asks for nothing here; write nos.nebuly.com/gpu-fraction: "0.5"',
        f"{CONTAINER} chooses nothing: no {FRACTION} or {MEMORY} stands beside it",
        "nos.nebuly.com/team is no key of Apportion and asks for nothing",
        'nvidia.com/gpumem is a key of HAMi and asks for nothing here; write nos.nebuly.com/gpu-memory: "3000Mi"',
    )


@pytest.mark.parametrize(("stored", "told"), [("3k", "3000Mi"), (40, "40Mi")])
def test_advice_can_be_copied_although_the_api_server_writes_amounts_its_own_way(stored, told):
    """W39: 3000 in a manifest reaches us as 3k."""
    (warning,) = read_requests(make_pod(limits={"nvidia.com/gpumem": stored})).warnings
    assert warning.endswith(f'write {MEMORY}: "{told}"')


def record(asked, given, mode="mig", **more):
    entry = {"asked": asked, "given": given, "mode": mode, **more}
    return {names.RECORD: json.dumps({"v": 1, "containers": {"main": entry}})}


SLICE = {"nvidia.com/mig-1g.10gb": "1"}


@pytest.mark.parametrize(
    ("asked", "annotations"),
    [
        pytest.param({FRACTION: "0.25"}, {FRACTION: "0.25"}, id="annotation"),
        pytest.param({FRACTION: "0.25", COUNT: "1"}, {FRACTION: "0.25", COUNT: "1"}, id="annotation with count"),
        pytest.param({"nvidia.com/gpu": "250m"}, {}, id="share in limits"),
        pytest.param(SLICE, {}, id="slice"),
    ],
)
def test_a_wish_whose_record_agrees_is_answered(asked, annotations):
    """W16: the pod that comes back from the first review."""
    pod = make_pod(
        annotations=annotations | record(asked, SLICE, model="NVIDIA-A100-SXM4-40GB"), limits=SLICE, requests=SLICE
    )
    (wish,) = read_requests(pod).wishes
    assert (wish.ask, wish.asked) == (Slice("nvidia.com/mig-1g.10gb", "mig"), asked)
    assert wish.answered.model == "NVIDIA-A100-SXM4-40GB"


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param(record({"nvidia.com/gpu": "1"}, {"nvidia.com/mig-7g.40gb": "1"}), id="another slice"),
        pytest.param(record({"nvidia.com/gpu": "500m"}, {"nvidia.com/mig-1g.10gb": "2"}), id="another count"),
        pytest.param(record({"nvidia.com/gpu": "500m"}, SLICE, mode="mps"), id="another mode"),
        pytest.param(record({"cpu": "1"}, SLICE), id="another request"),
        pytest.param(record({FRACTION: "0.25"}, SLICE), id="an annotation that is gone"),
        pytest.param({names.RECORD: "{"}, id="no JSON"),
        pytest.param({names.RECORD: json.dumps({"v": 2, "containers": {}})}, id="another version"),
    ],
)
def test_a_record_that_disagrees_counts_for_nothing(annotations):
    """W35."""
    (wish,) = read_requests(make_pod(annotations=annotations, limits=SLICE)).wishes
    assert (wish.answered, wish.asked) == (None, SLICE)


def test_a_record_of_another_annotation_does_not_answer_this_one():
    told = faults(annotations={FRACTION: "0.5"} | record({FRACTION: "0.25"}, SLICE), limits=SLICE)
    assert told == [
        f"metadata.annotations[{FRACTION}]: 0.5: container main asks for nvidia.com/mig-1g.10gb 1 too: keep one of them"
    ]


_keys = st.sampled_from(
    [FRACTION, MEMORY, COUNT, f"{FRACTION}.main", f"{MEMORY}.main", "nos.nebuly.com/gpu-fractio", f"{FRACTION}.nobody"]
)
_values = st.sampled_from(["0.5", "1/3", "10Gi", "2", "", "x", "-1", "1e3", "100%", "0"])
_resources = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/gpu-5gb", "nvidia.com/gpu-5g", "cpu"]),
    st.sampled_from(["0", "1", "500m", "1500m", "x", "-1"]),
)


@given(st.dictionaries(_keys, _values, max_size=3), _resources, _resources)
def test_what_looks_like_a_request_is_a_wish_or_a_fault_or_left_by_name(annotations, limits, requests):
    """W34, W39: never silently nothing."""
    found = read_requests(make_pod(annotations=annotations, limits=limits, requests=requests))
    resources = [*limits.items(), *requests.items()]
    asked = any(key.startswith(names.PREFIX) for key in annotations) or any(
        name == "nvidia.com/gpu-5g" or (name != "cpu" and value != "0") for name, value in resources
    )
    assert bool(found.wishes or found.faults or found.left) is asked


def test_a_label_that_should_be_an_annotation_is_warned_of_and_harms_nobody():
    found = read_requests(
        make_pod(labels={FRACTION: "0.25", f"{COUNT}.main": "2", "nos.nebuly.com/capacity": "in-quota", "app": "a"})
    )
    assert (found.wishes, found.faults, found.asks) == ((), (), False)
    assert found.warnings == (
        f'{FRACTION} is a label here and says nothing; write it as an annotation: {FRACTION}: "0.25"',
        f'{COUNT}.main is a label here and says nothing; write it as an annotation: {COUNT}.main: "2"',
    )


def test_a_label_beside_the_same_annotation_is_not_warned_of():
    found = read_requests(make_pod(labels={FRACTION: "0.25"}, annotations={FRACTION: "0.25"}))
    assert (len(found.wishes), found.warnings) == (1, ())
