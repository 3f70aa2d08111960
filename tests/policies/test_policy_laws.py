"""Laws of admission under any policy, over odd pods."""

import json
from fractions import Fraction

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies import names
from policies.admission import admit
from policies.inventory import Inventory
from policies.model import Pod
from policies.policy import Limits, PolicyView, Rule
from policies.settings import DEFAULTS
from policies.shares import read_memory, read_share
from policies.view import view_node
from tests.builders import A30, A100, A100_80, T4, make_node
from tests.policies.odd_pods import pods

NODES = (
    make_node("a", count=8), make_node("b", A100_80), make_node("c", A30), make_node("d", mode="mps", count=2), make_node("e", A100_80, mode="mps"),
    make_node("f", T4, mode="timeslicing"), make_node("g", mode=None, resources={"nvidia.com/mig-9g.9gb": "1"}),
)  # fmt: skip
INVENTORY = Inventory.of(view_node(node) for node in NODES)

NOMINAL_GB = {A100: 40, A100_80: 80, A30: 24, "NVIDIA-H100-NVL": 94}

_share = st.sampled_from([None, *map(read_share, ("0.1", "1/7", "0.25", "0.5", "1"))])
_rules = st.builds(
    Rule,
    match=st.sampled_from([{}, {"app": "in-quota"}]),
    modes=st.lists(st.sampled_from(names.MODES), min_size=1, unique=True).map(tuple),
    whole_gpu=st.sampled_from([None, "deny", read_share("0.5"), read_memory("10Gi")]),
    gpu_models=st.sampled_from([(), (), (A100,), (A100, A100_80), (A30, "unheard-of"), ("NVIDIA-H100-NVL",)]),
    exact=st.booleans(),
    limits=st.builds(Limits, least=_share, most=_share, slices=st.sampled_from([None, 1, 2])),
    host_ipc=st.booleans(),
    proportional_threads=st.booleans(),
    visible_devices=st.booleans(),
    privileged=st.booleans(),
).map(lambda rule: replace(rule, nameable=rule.modes))
policies = st.lists(_rules, min_size=1, max_size=2).map(
    lambda rules: PolicyView(namespace="team-a", name="p", rules=tuple(rules))
)


def review(raw, policy):
    pod = msgspec.convert(raw, Pod)
    return admit(pod, namespace="team-a", labels={}, inventory=INVENTORY, settings=DEFAULTS, policy=policy)


def admitted(raw, policy):
    """Return the pod after its review, or None if it is denied."""
    found = review(raw, policy)
    separate = json.loads(json.dumps(raw))  # the strategies reuse objects, and a patch of one would change them all
    return None if found.faults else jsonpatch.apply_patch(separate, msgspec.to_builtins(found.patch))


def record_of(pod):
    note = (pod["metadata"].get("annotations") or {}).get(names.RECORD)
    return json.loads(note)["containers"] if note else {}


@given(pods, policies)
def test_a_second_review_under_the_same_policy_changes_and_denies_nothing(raw, policy):
    """W16."""
    after = admitted(raw, policy)
    if after is not None:
        again = review(after, policy)
        assert again.faults == ()
        assert again.patch == ()


@given(pods, policies)
def test_nothing_is_given_that_the_rule_does_not_allow(raw, policy):
    """And nothing is left behind on the pod that somebody would have to take away again (W37)."""
    after = admitted(raw, policy)
    if after is None:
        return
    assert after["metadata"].get("finalizers") == raw["metadata"].get("finalizers")
    rule, record = policy.rule_for(raw["metadata"].get("labels")), record_of(after)
    for entry in record.values():
        ((resource, _),) = entry["given"].items()
        assert entry["mode"] in rule.nameable
        if rule.whole_gpu == "deny":
            assert entry["asked"].get("nvidia.com/gpu") not in {"1", "2"}
        if resource.startswith("nvidia.com/gpu-") and entry.get("model"):
            gigabytes = int(resource.removeprefix("nvidia.com/gpu-").removesuffix("gb"))
            share = Fraction(gigabytes, NOMINAL_GB[entry["model"]])
            assert rule.limits.most is None or share <= rule.limits.most.exact + Fraction(1, 100)
            assert rule.limits.least is None or share >= rule.limits.least.exact - Fraction(1, 100)
    if rule.limits.slices:
        assert sum(int(count) for entry in record.values() for count in entry["given"].values()) <= rule.limits.slices
    if record and rule.gpu_models:
        terms = after["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        for term in terms["nodeSelectorTerms"]:
            wanted = [e["values"] for e in term.get("matchExpressions") or [] if e["key"] == names.PRODUCT_LABEL]
            assert wanted
            assert {*wanted[0]} <= {*rule.gpu_models}
