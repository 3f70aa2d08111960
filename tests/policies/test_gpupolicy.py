"""GpuPolicy objects: what they say, every fault of them at once, and which of them governs a namespace."""

import msgspec
import pytest

from policies.gpupolicy import Policies, view_policy
from policies.model import GpuPolicy
from policies.policy import BUILT_IN, NO_POLICY, Limits, PolicyView, Rule
from policies.shares import Memory, Share


def policy(spec=None, *, key="team-a/team-a", created=None):
    namespace, name = key.split("/")
    meta = {"name": name, "namespace": namespace, "creationTimestamp": created}
    return view_policy(msgspec.convert({"metadata": meta, "spec": {} if spec is None else spec}, GpuPolicy))


def rule(**fields):
    (read,) = policy({"rules": [fields]}).rules
    return read


def test_a_policy_is_read_whole():
    """The example of the design."""
    read = policy(
        {
            "rules": [
                {"match": {"matchLabels": {"tier": "interactive"}}, "modes": ["mps"], "wholeGpu": {"memory": "10Gi"}},
                {
                    "modes": ["mig", "mps"],
                    "gpuModels": ["NVIDIA-A100-SXM4-40GB"],
                    "rounding": "exact",
                    "limits": {"minFraction": "0.1", "maxFraction": "1", "maxSlicesPerPod": 4},
                    "mps": {"hostIPC": False, "threads": "proportional"},
                    "visibleDevices": "allow",
                    "privileged": "allow",
                },
            ],
            "quota": {"admission": "label"},
        }
    )
    assert read.faults == ()
    assert not read.gates
    assert read.rules == (
        Rule(match={"tier": "interactive"}, modes=("mps",), nameable=("mps",), whole_gpu=Memory(10240, 1, real=True)),
        Rule(
            nameable=("mig", "mps"),
            gpu_models=("NVIDIA-A100-SXM4-40GB",),
            exact=True,
            limits=Limits(least=Share(1, 10, 2), most=Share(1, 1, 2), slices=4),
            host_ipc=False,
            proportional_threads=True,
            visible_devices=True,
            privileged=True,
        ),
    )


def test_an_empty_rule_has_the_defaults_of_the_built_in_one_but_names_what_a_pod_may_name():
    assert rule() == msgspec.structs.replace(BUILT_IN, nameable=("mig", "mps"))


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        pytest.param("keep", None, id="keep"),
        pytest.param("deny", "deny", id="deny"),
        pytest.param({"fraction": "1/2"}, Share(1, 2), id="fraction"),
        pytest.param({"memory": "10GB"}, Memory(10, 1, real=False), id="memory"),
        pytest.param({"memory": "10GB", "fraction": None}, Memory(10, 1, real=False), id="a null is not there"),
    ],
)
def test_a_whole_gpu_is_kept_denied_or_becomes_something(written, whole):
    assert rule(wholeGpu=written).whole_gpu == whole


SHARE = "a share is more than 0 and at most 1, of at most 9 decimals: write for example 0.25, 250m or 1/7"


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        pytest.param(
            {"rules": [{"modes": ["mgi"], "limits": {"minFraction": "2"}, "colour": "blue"}], "quota": {"admission": "x"}},
            ["spec.rules[0].modes[0]: mgi: must be one of mig, mps, timeslicing",
             f"spec.rules[0].limits.minFraction: 2: {SHARE}",
             "spec.rules[0].colour: blue: there is no such field: there are match, modes, wholeGpu, gpuModels, rounding, "
             "limits, mps, visibleDevices, privileged",
             "spec.quota.admission: x: must be one of gate, label"],
            id="all faults at once, of shape and of sense",
        ),
        pytest.param({"rules": [{"wholeGpu": "half"}]},
                     ["spec.rules[0].wholeGpu: half: must be one of deny, keep or an object with fraction or memory"],
                     id="no such word"),
        pytest.param({"rules": [{"wholeGpu": 1}]},
                     ["spec.rules[0].wholeGpu: 1: must be one of deny, keep or an object with fraction or memory, not a number"],
                     id="neither word nor object"),
        pytest.param({"rules": [{"wholeGpu": {}}]},
                     ["spec.rules[0].wholeGpu.fraction: neither: a whole GPU becomes a share or an amount of memory: "
                      "write one of the two"], id="a whole GPU that becomes nothing"),
        pytest.param({"rules": [{"wholeGpu": {"fraction": "1", "memory": "1"}}]},
                     ["spec.rules[0].wholeGpu.fraction: both: a whole GPU becomes a share or an amount of memory: "
                      "write one of the two"], id="a whole GPU that becomes two things"),
        pytest.param({"rules": [{"wholeGpu": {"fraction": "0"}}, {"wholeGpu": {"memory": "10 GB"}}]},
                     [f"spec.rules[0].wholeGpu.fraction: 0: {SHARE}",
                      "spec.rules[1].wholeGpu.memory: 10 GB: memory is more than 0: Gi GiB Mi MiB are real memory, G GB or "
                      "no unit the GB of slice names: write for example 10Gi, 4864MiB or 10GB"],
                     id="a whole GPU that becomes nonsense"),
        pytest.param({"rules": [{"limits": {"minFraction": "0.5", "maxFraction": "0.25", "maxSlicesPerPod": 0}}]},
                     ["spec.rules[0].limits.minFraction: 0.5: is more than maxFraction, 0.25",
                      "spec.rules[0].limits.maxSlicesPerPod: 0: a pod may have at least 1, or leave the field out"],
                     id="limits that nothing is within"),
        pytest.param({"rules": [{"limits": {"maxFraction": 0.5}}]},
                     ["spec.rules[0].limits.maxFraction: 0.5: must be text, not a number: quote it"], id="a number for text"),
        pytest.param({"rules": [{"modes": []}, {"modes": ["mig", "mps", "mig"]}]},
                     ["spec.rules[0].modes: []: name at least one mode, and each once",
                      "spec.rules[1].modes: mig, mps, mig: name at least one mode, and each once"], id="no mode, and one twice"),
        pytest.param({"rules": [{"match": {"matchLabels": {"a b": "-x"}}, "gpuModels": ["NVIDIA A100"]}]},
                     ["spec.rules[0].match.matchLabels[a b]: a b: is no key of a label: write for example tier or "
                      "example.com/tier",
                      "spec.rules[0].match.matchLabels[a b]: -x: is no value of a label: up to 63 letters, digits, - _ and "
                      "., at both ends a letter or digit"],
                     id="labels that no pod can have"),
        pytest.param({"rules": [{"gpuModels": ["NVIDIA A100", ""]}]},
                     ["spec.rules[0].gpuModels[0]: NVIDIA A100: is no value of a label: up to 63 letters, digits, - _ and ., "
                      "at both ends a letter or digit: write what nodes have as nvidia.com/gpu.product",
                      'spec.rules[0].gpuModels[1]: "": is no value of a label: up to 63 letters, digits, - _ and ., at both '
                      "ends a letter or digit: write what nodes have as nvidia.com/gpu.product"],
                     id="models that no node can be labelled with"),
        pytest.param({"rules": {}, "rule": []},
                     ["spec.rules: {}: must be a list, not an object",
                      "spec.rule: []: there is no such field: there are rules, quota"], id="a misspelt list"),
        pytest.param([], ["spec: []: must be an object, not a list"], id="no specification"),
    ],
)  # fmt: skip
def test_every_fault_of_a_policy_is_told_with_its_path(spec, faults):
    read = policy(spec)
    assert list(read.faults) == faults
    assert read.rules == ()


# Which one governs ----------------------------------------------------------------------------------------------------

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def test_a_namespaces_own_policy_governs_it_and_the_default_one_those_without():
    default, own = policy(key="apportion-system/default"), policy(key="team-a/mine")
    policies = Policies([default, own])
    assert (policies.governing("team-a"), policies.governing("team-b")) == (own, default)
    assert own.is_own("team-a")
    assert not default.is_own("team-b")
    assert policies.unready == {}


def test_where_nobody_has_written_a_policy_the_built_in_rule_holds():
    policies = Policies([policy(key="apportion-system/other")])
    assert policies.governing("team-a") is NO_POLICY
    assert NO_POLICY.rule_for({}) is BUILT_IN
    assert NO_POLICY.gates
    assert not NO_POLICY.is_own("")


def test_the_older_of_two_policies_governs_the_namespace_and_the_younger_is_told_so():
    young, old = policy(key="team-a/a", created=NEW), policy(key="team-a/z", created=OLD)
    policies = Policies([young, old])
    assert policies.governing("team-a") == old
    assert policies.unready == {
        "GpuPolicy team-a/a": (
            "Conflict",
            "GpuPolicy team-a/z, which is older, governs the namespace: delete one of them",
        )
    }


def test_the_default_policy_holds_for_others_whatever_older_one_stands_beside_it():
    """Else a policy of one namespace would decide for all others."""
    default = policy(key="apportion-system/default", created=NEW)
    beside = policy(key="apportion-system/a", created=OLD)
    policies = Policies([default, beside])
    assert policies.governing("team-a") == default
    why = (
        "pods of apportion-system are not reviewed, and of its policies only the one called default holds elsewhere: "
        "move it to the namespace that it is for"
    )
    assert policies.unready == {"GpuPolicy apportion-system/a": ("NoEffect", why)}


def test_a_policy_of_our_namespace_that_is_not_the_default_says_that_it_has_no_effect_also_alone():
    """Its author is warned when it is written; who reads it later has only its condition."""
    beside = [policy(key=f"apportion-system/{name}") for name in ("a", "b")]
    assert [reason for reason, _ in Policies(beside).unready.values()] == ["NoEffect", "NoEffect"]


def test_an_invalid_policy_governs_with_its_faults_and_disturbs_no_other():
    """A valid younger one does not take its place, for who broke the older one wanted something else (pain Q37)."""
    broken = policy({"rules": 1}, key="team-a/a", created=OLD)
    policies = Policies([broken, policy(key="team-a/b", created=NEW), policy(key="team-b/b")])
    assert policies.governing("team-a").faults == ("spec.rules: 1: must be a list, not a number",)
    assert policies.governing("team-b").faults == ()
    assert policies.unready["GpuPolicy team-a/a"] == ("Invalid", "spec.rules: 1: must be a list, not a number")
    assert policies.unready["GpuPolicy team-a/b"][0] == "Conflict"


def test_the_first_rule_that_fits_the_labels_of_a_pod_holds():
    first, second = Rule(match={"tier": "a", "zone": "b"}), Rule(match={"tier": "a"})
    view = PolicyView(rules=(first, second))
    assert view.rule_for({"tier": "a", "zone": "b", "other": "c"}) is first
    assert view.rule_for({"tier": "a", "zone": "c"}) is second
    assert view.rule_for({"zone": "b"}) is BUILT_IN
    assert view.rule_for(None) is BUILT_IN
