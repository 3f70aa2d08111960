"""Laws of admission, over pods of every odd shape: init containers, absent and null parents, `/` in keys, unknown fields."""

import copy
import json
from fractions import Fraction

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from policies import names
from policies.admission import admit, readmit
from policies.inventory import Inventory
from policies.model import Pod
from policies.quantity import parse
from policies.settings import DEFAULTS
from policies.view import view_node
from tests.builders import A30, A100_80, H100, T4, make_node

NODES = (
    make_node("a"), make_node("b", A100_80), make_node("c", A30), make_node("d", mode="mps"), make_node("e", T4, mode="timeslicing"),
    make_node("f", H100, cordoned=True), make_node("g", mode=None, resources={"nvidia.com/mig-9g.9gb": "1"}),
)  # fmt: skip
INVENTORY = Inventory.of(view_node(node) for node in NODES)


def review(raw):
    return admit(msgspec.convert(raw, Pod), namespace="team-a", labels={}, inventory=INVENTORY, settings=DEFAULTS)


def apply(raw, found):
    separate = json.loads(json.dumps(raw))  # the strategies reuse objects, and a patch of one would change them all
    return jsonpatch.apply_patch(separate, msgspec.to_builtins(found.patch))


def sometimes(strategy):
    """Absent, null, or there."""
    return st.just(...) | st.none() | strategy


def thing(**fields):
    """An object some of whose fields are absent."""
    return st.fixed_dictionaries(fields).map(
        lambda made: {key: value for key, value in made.items() if value is not ...}
    )


_GPUS = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb", "nvidia.com/mig-9g.9gb",
         "nvidia.com/gpu.shared", "cpu", "example.com/a~b")  # fmt: skip
_amounts = st.dictionaries(
    st.sampled_from(_GPUS), st.sampled_from(["1", "500m", "250m", "2", "0", "142857143n"]), max_size=1
)
_same = _amounts.map(lambda amounts: {"limits": dict(amounts), "requests": dict(amounts)})
_resources = (
    st.just({})
    | _same
    | _same
    | thing(limits=sometimes(_amounts), requests=sometimes(_amounts), claims=sometimes(st.just([])))
)
_context = thing(
    runAsUser=sometimes(st.sampled_from([0, 1000, 2000])),
    privileged=st.sampled_from([..., None, False, False, True]),
    seccompProfile=sometimes(st.just({"a": 1})),
)
_env = st.lists(
    st.sampled_from([{"name": "A", "value": "b"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]), max_size=2
)
_mounts = st.lists(
    st.sampled_from([{"name": "v", "mountPath": "/dev/shm"}, {"name": "v", "mountPath": "/x", "subPath": "y"}]),
    max_size=1,
)


def containers(prefix, least):
    one = thing(
        image=st.just("x"), resources=sometimes(_resources), securityContext=sometimes(_context), env=sometimes(_env), volumeMounts=sometimes(_mounts),
        restartPolicy=st.sampled_from([..., "Always"]), unknownField=sometimes(st.just({"k": [1, {"n": None}]})),
    )  # fmt: skip
    return st.lists(one, min_size=least, max_size=3).map(
        lambda found: [{"name": f"{prefix}{i}", **each} for i, each in enumerate(found)]
    )


_key = st.sampled_from(
    [names.FRACTION, names.MEMORY, names.COUNT, names.MODE, names.CONTAINER, f"{names.FRACTION}.c0", f"{names.MEMORY}.i0", f"{names.FRACTION}.c1",
     "a/b~c", "kubernetes.io/role", "gpu-fraction", *names.OUR_MARKS]
)  # fmt: skip
_value = st.sampled_from(
    ["0.5", "0.25", "1/7", "10Gi", "4GB", "2", "mig", "mps,mig", "timeslicing", "c0", "i0", "nonsense", "{}"]
)
_good = st.sampled_from([{names.FRACTION: "0.25"}, {names.MEMORY: "9.6Gi"}, {f"{names.FRACTION}.c0": "0.5", f"{names.MEMORY}.i0": "4GB"},
                         {names.FRACTION: "0.5", names.MODE: "mps"}])  # fmt: skip
_annotations = _good | _good | _good | st.dictionaries(_key, _value, max_size=3)
_terms = st.lists(
    thing(
        matchExpressions=sometimes(
            st.lists(st.just({"key": "kubernetes.io/hostname", "operator": "Exists"}), max_size=1)
        ),
        matchFields=sometimes(
            st.lists(st.just({"key": "metadata.name", "operator": "NotIn", "values": ["zz"]}), max_size=1)
        ),
    ),
    min_size=1,
    max_size=2,
)
_affinity = thing(
    nodeAffinity=sometimes(
        thing(requiredDuringSchedulingIgnoredDuringExecution=sometimes(thing(nodeSelectorTerms=_terms)))
    ),
    podAffinity=sometimes(st.just({})),
)
pods = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": thing(
            generateName=st.just("x-"), annotations=sometimes(_annotations), finalizers=sometimes(st.just(["a/b"])),
            labels=sometimes(st.dictionaries(st.sampled_from(["app", "nos.nebuly.com/capacity"]), st.just("in-quota"))),
        ),
        "spec": thing(
            containers=containers("c", 1), initContainers=sometimes(containers("i", 0)), securityContext=sometimes(_context),
            affinity=sometimes(_affinity), hostIPC=sometimes(st.booleans()), nodeSelector=sometimes(st.just({})),
            schedulingGates=sometimes(st.lists(st.sampled_from([{"name": "other/gate"}, {"name": names.GATE}]), max_size=2, unique_by=str)),
            schedulerName=st.sampled_from([..., "nos-scheduler", "default-scheduler"]), nodeName=st.sampled_from([..., ..., ..., ..., ..., "n1"]),
            unknownField=sometimes(st.just([1, None])),
        ),
    }
)  # fmt: skip


def all_containers(pod):
    return [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]


def is_gpu(resource):
    return resource.startswith(("nvidia.com/gpu", "nvidia.com/mig-"))


def without_ours(pod):
    """Return a pod without anything that admission may write; what is empty, null or absent is the same."""
    pod = copy.deepcopy(pod)
    meta, spec = pod["metadata"], pod["spec"]
    for holder, ours in (
        (meta.get("annotations"), names.OUR_MARKS),
        (meta.get("labels"), (names.CAPACITY_LABEL,)),
    ):
        for key in ours:
            (holder or {}).pop(key, None)
    for each in all_containers(pod):
        (each.get("securityContext") or {}).pop("runAsUser", None)
        for kind in ("limits", "requests"):
            amounts = (each.get("resources") or {}).get(kind) or {}
            for resource in [name for name in amounts if is_gpu(name)]:
                del amounts[resource]
    for key in ("hostIPC", "schedulerName"):
        spec.pop(key, None)
    spec["schedulingGates"] = [gate for gate in spec.get("schedulingGates") or [] if gate["name"] != names.GATE]
    required = (((spec.get("affinity") or {}).get("nodeAffinity")) or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in required.get("nodeSelectorTerms", []):
        term["matchExpressions"] = [
            each for each in term.get("matchExpressions") or [] if each["key"] != names.PRODUCT_LABEL
        ]
    return without_nothing(pod)


def without_nothing(value):
    if isinstance(value, dict):
        inner = {key: without_nothing(each) for key, each in value.items()}
        return {key: each for key, each in inner.items() if each not in (None, {}, [])}
    if isinstance(value, list):
        return [each for each in map(without_nothing, value) if each not in (None, {}, [])]
    return value


@given(pods)
def test_a_patch_applies_and_changes_nothing_that_is_not_ours(raw):
    """W10, W11, W15: whatever is absent, null, or unknown to us."""
    before = copy.deepcopy(raw)
    found = review(raw)
    assert raw == before
    assert not (found.faults and found.patch)
    assert without_ours(apply(raw, found)) == without_ours(raw)


@given(pods)
def test_a_second_review_changes_nothing(raw):
    """W16."""
    first = review(raw)
    if not first.faults:
        second = review(apply(raw, first))
        assert (second.faults, second.patch) == ((), ())


@given(pods)
def test_what_is_admitted_is_what_the_record_says(raw):
    """W01, W03, W08, W34, W35: no fraction is left, nothing that was asked is lost, nothing else is given."""
    found = review(raw)
    if found.faults:
        return
    pod = apply(raw, found)
    record = json.loads((pod["metadata"].get("annotations") or {}).get(names.RECORD, '{"containers": {}}'))[
        "containers"
    ]
    # gpu.shared is ours only where the pod may use a node that shares by time.
    foreign = {"nvidia.com/mig-9g.9gb", "nvidia.com/gpu.shared"}
    for each in all_containers(pod):
        limits, requests = (
            {k: v for k, v in ((each.get("resources") or {}).get(kind) or {}).items() if is_gpu(k) and parse(v)}
            for kind in ("limits", "requests")
        )
        if each["name"] in record:
            assert limits == requests == record[each["name"]]["given"]
        else:
            assert all(
                name in foreign or (name == "nvidia.com/gpu" and parse(amount).denominator == 1)
                for name, amount in (limits | requests).items()
            )
    asked = {
        key: value
        for key, value in (raw["metadata"].get("annotations") or {}).items()
        if key.startswith((names.FRACTION, names.MEMORY, names.COUNT))
    }
    recorded = {
        key: value for entry in record.values() for key, value in entry["asked"].items() if key.startswith(names.PREFIX)
    }
    assert recorded == asked
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or []]
    if any(entry["mode"] != "timeslicing" for entry in record.values()):
        assert gates.count(names.GATE) == 1
        assert not pod["spec"].get("nodeName")
    if any(entry["mode"] == "mps" for entry in record.values()):
        assert pod["spec"]["hostIPC"] is True


@given(pods, st.data())
def test_an_update_never_changes_what_was_admitted(raw, data):
    """W13, design 3.5: whatever the user does to the GPU resources of an admitted pod."""
    found = review(raw)
    if found.faults:
        return
    old = apply(raw, found)
    new = copy.deepcopy(old)
    for each in all_containers(new):
        change = data.draw(st.sampled_from(["keep", "drop", "add"]))
        if change == "drop":
            each.pop("resources", None)
        elif change == "add" and each.get("resources"):
            each["resources"]["limits"] = {**(each["resources"].get("limits") or {}), "nvidia.com/gpu": "500m"}
    answer = readmit(msgspec.convert(new, Pod), msgspec.convert(old, Pod))
    assert answer.faults == ()
    kept = apply(new, answer)
    record = json.loads((old["metadata"].get("annotations") or {}).get(names.RECORD, '{"containers": {}}'))[
        "containers"
    ]
    for now, before in zip(all_containers(kept), all_containers(old), strict=True):
        if now["name"] in record:
            for kind in ("limits", "requests"):
                assert {k: v for k, v in now["resources"][kind].items() if is_gpu(k)} == {
                    k: v for k, v in before["resources"][kind].items() if is_gpu(k)
                }


@given(st.fractions(Fraction(1, 1000), 1, max_denominator=10**6))
def test_a_slice_is_never_less_than_the_share_and_never_wasteful(fraction):
    """By ratio, so without rounding: the profile reaches the share, and no smaller one does."""
    text = f"{fraction.numerator}/{fraction.denominator}"
    raw = {
        "metadata": {"annotations": {names.FRACTION: text}},
        "spec": {"containers": [{"name": "c0"}], "nodeSelector": {"kubernetes.io/hostname": "a"}},
    }
    pod = apply(raw, review(raw))
    (resource,) = pod["spec"]["containers"][0]["resources"]["limits"]
    reach = {
        "1g.5gb": Fraction(1, 7),
        "1g.10gb": Fraction(1, 4),
        "2g.10gb": Fraction(2, 7),
        "3g.20gb": Fraction(1, 2),
        "4g.20gb": Fraction(4, 7),
        "7g.40gb": Fraction(1),
    }
    assert resource.removeprefix("nvidia.com/mig-") == next(name for name, share in reach.items() if share >= fraction)
