"""A pod may run where the scheduler would put it."""

import msgspec
import pytest

from policies.constraints import constraints_of
from policies.model import PodSpec, Taint

LABELS = {"zone": "a", "gpus": "4", "kubernetes.io/hostname": "n1"}


def constraints(**spec):
    return constraints_of(msgspec.convert({"containers": [], **spec}, PodSpec))


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "selected"),
    [
        pytest.param({}, True, id="nothing-required"),
        pytest.param({"nodeSelector": {"zone": "a"}}, True, id="selector"),
        pytest.param({"nodeSelector": {"zone": "b"}}, False, id="selector-differs"),
        pytest.param({"nodeSelector": {"rack": "1"}}, False, id="selector-of-an-absent-label"),
        pytest.param({"affinity": affinity(expression("zone", "In", "b", "a"))}, True, id="in"),
        pytest.param({"affinity": affinity(expression("zone", "NotIn", "a"))}, False, id="not-in"),
        pytest.param({"affinity": affinity(expression("rack", "NotIn", "a"))}, True, id="not-in-of-an-absent-label"),
        pytest.param({"affinity": affinity(expression("zone", "Exists"))}, True, id="exists"),
        pytest.param({"affinity": affinity(expression("rack", "DoesNotExist"))}, True, id="does-not-exist"),
        pytest.param({"affinity": affinity(expression("gpus", "Gt", "3"))}, True, id="greater"),
        pytest.param({"affinity": affinity(expression("gpus", "Lt", "4"))}, False, id="less"),
        pytest.param({"affinity": affinity(expression("zone", "Gt", "3"))}, False, id="greater-than-no-number"),
        pytest.param(
            {"affinity": affinity(expression("zone", "In", "b"), expression("gpus", "Exists"))}, True, id="or"
        ),
        pytest.param({"affinity": affinity({})}, False, id="an-empty-term-matches-nothing"),
        pytest.param({"affinity": affinity()}, False, id="no-term-matches-nothing"),
        pytest.param(
            {"affinity": affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})},
            True,
            id="field",
        ),
    ],
)
def test_selector_and_required_affinity_bind(spec, selected):
    assert constraints(**spec).selects("n1", LABELS) is selected


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(None, False, id="none"),
        pytest.param({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True, id="equal"),
        pytest.param({"key": "gpu", "value": "yes"}, True, id="equal-is-the-default"),
        pytest.param({"key": "gpu", "value": "no"}, False, id="another-value"),
        pytest.param({"key": "gpu", "operator": "Exists"}, True, id="exists"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False, id="another-effect"),
    ],
)
def test_a_taint_keeps_off_who_does_not_tolerate_it(toleration, tolerated):
    pod = constraints(tolerations=[toleration] if toleration else [])
    assert pod.tolerates([Taint("gpu", "NoSchedule", "yes")]) is tolerated


def test_a_preferred_absence_keeps_nobody_off():
    assert constraints().tolerates([Taint("gpu", "PreferNoSchedule")])


def test_taints_of_kubernetes_only_say_that_a_node_is_away():
    away = [Taint("node.kubernetes.io/not-ready", "NoExecute")]
    assert not constraints().tolerates(away)
    assert constraints().tolerates(away, although_away=True)
    assert not constraints().tolerates([Taint("gpu", "NoSchedule")], although_away=True)
