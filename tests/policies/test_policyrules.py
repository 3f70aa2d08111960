"""What is refused of a policy when it is written, and what its author is warned about."""

import msgspec
import pytest

from policies.gpupolicy import view_policy
from policies.model import GpuPolicy
from policies.policyrules import judge_policy

A100, T4 = "NVIDIA-A100-SXM4-40GB", "Tesla-T4"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def policy(*rules, key="team-a/mine", created=NEW):
    namespace, name = key.split("/")
    meta = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return view_policy(msgspec.convert({"metadata": meta, "spec": {"rules": list(rules)}}, GpuPolicy))


def warnings(written, *others, products=()):
    judged = judge_policy(written, others, products)
    assert judged.faults == ()
    return list(judged.warnings)


def test_every_fault_that_the_schema_cannot_see_is_told_at_once():
    """W34, W39: no half of a policy is followed."""
    judged = judge_policy(
        policy(
            {"wholeGpu": {"memory": "10 apples"}},
            {"wholeGpu": {"fraction": "0.5", "memory": "10Gi"}},
            {"wholeGpu": {"fractoin": "0.5"}},
            {"limits": {"minFraction": "1/2", "maxFraction": "1/7"}},
        ),
        [],
        (),
    )
    assert judged.warnings == ()
    assert [text.partition(": ")[0] for text in judged.faults] == [
        "spec.rules[0].wholeGpu.memory",
        "spec.rules[1].wholeGpu.fraction",
        "spec.rules[2].wholeGpu.fractoin",
        "spec.rules[3].limits.minFraction",
    ]
    assert judged.faults[3] == "spec.rules[3].limits.minFraction: 1/2: is more than maxFraction, 1/7"


@pytest.mark.parametrize(
    ("written", "others", "said"),
    [
        pytest.param(policy(), [], [], id="alone"),
        pytest.param(policy(), [policy(created=OLD)], [], id="its own older self"),
        pytest.param(policy(), [policy(key="team-b/theirs", created=OLD)], [], id="in another namespace"),
        pytest.param(
            policy(),
            [policy(key="team-a/first", created=OLD)],
            ["has no effect: GpuPolicy team-a/first, which is older, governs the namespace: delete one of them"],
            id="the younger of two",
        ),
        pytest.param(
            policy(created=OLD), [policy(created=OLD), policy(key="team-a/second")], [], id="the older of two, changed"
        ),
        pytest.param(
            policy(key="apportion-system/other"),
            [],
            [
                "has no effect: pods of apportion-system are not reviewed, and of its policies only the one called default "
                "holds elsewhere: move it to the namespace that it is for"
            ],
            id="a default by another name",
        ),
        pytest.param(
            policy(key="apportion-system/default"),
            [policy(key="apportion-system/other", created=OLD)],
            [],
            id="the default beside an older one, which had no effect before",
        ),
    ],
)
def test_of_two_policies_in_a_namespace_its_author_learns_which_holds(written, others, said):
    assert warnings(written, *others) == said


def match(**labels):
    return {"match": {"matchLabels": labels}}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        pytest.param([match(tier="a"), match(tier="b"), {}], [], id="the last fits all"),
        pytest.param([match(tier="a", zone="x"), match(tier="a")], [], id="the narrower one first"),
        pytest.param(
            [{}, match(tier="a"), {}],
            [
                "spec.rules[1] is never reached: spec.rules[0] fits every pod, and the first that fits holds",
                "spec.rules[2] is never reached: spec.rules[0] fits every pod, and the first that fits holds",
            ],
            id="the first fits all",
        ),
        pytest.param(
            [match(tier="a"), match(tier="b"), match(zone="x", tier="b")],
            [
                "spec.rules[2] is never reached: spec.rules[1] fits every pod that it fits, and the first that fits holds"
            ],
            id="the wider one first",
        ),
    ],
)
def test_a_rule_that_is_never_reached_is_told_of(rules, said):
    assert warnings(policy(*rules)) == said


@pytest.mark.parametrize(
    ("model", "said"),
    [
        pytest.param(A100, [], id="of the tables"),
        pytest.param("NVIDIA-A100-SXM4-40GB-SHARED", [], id="as NVIDIA's plugin renames it"),
        pytest.param("NVIDIA-X1000", [], id="of a node"),
        pytest.param("NVIDIA-OF-NOBODY", [""], id="of nobody"),
        pytest.param("NVIDIA-A100-SXM4-40G", [f"; is {A100} meant?"], id="W34-misspelt"),
        pytest.param("nvidia-a100-sxm4-40gb", [f"; is {A100} meant?"], id="W34-in-lower-case"),
    ],
)
def test_a_model_that_no_node_and_no_table_knows_is_told_of(model, said):
    assert warnings(policy({"gpuModels": [T4, model]}), products={"NVIDIA-X1000"}) == [
        f"spec.rules[0].gpuModels[1]: {model}: no node of ours has that as nvidia.com/gpu.product and no table knows it: "
        f"nothing is made of it until one has{near}"
        for near in said
    ]
