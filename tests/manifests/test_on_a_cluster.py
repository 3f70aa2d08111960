"""What the API server makes of our kinds: defaults and faults."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from kube.client import Client
from kube.errors import Invalid
from kube.resource import GPU_POLICIES, NAMESPACES, Resource
from policies.gpupolicy import view_policy
from policies.model import GpuPolicy, ObjectMeta

pytestmark = pytest.mark.sandbox

NAMESPACE = "test-kinds"
SYSTEM = "apportion-system"
QUOTAS = Resource("nos.nebuly.com", "v1alpha1", "elasticquotas", namespaced=True)
COMPOSITES = Resource("nos.nebuly.com", "v1alpha1", "compositeelasticquotas", namespaced=True)


@pytest.fixture(scope="module")
def client(sandbox, root) -> Iterator[Client]:
    sandbox.kubectl("apply", "--server-side", "-k", str(root / "crds"))
    sandbox.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    client = Client.load(str(sandbox.kubeconfig))
    client.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    yield client
    client.close()


def dry(client, resource, spec):
    body = {"apiVersion": resource.api_version, "metadata": {"name": "one"}, "spec": spec}
    kinds = {QUOTAS: "ElasticQuota", COMPOSITES: "CompositeElasticQuota", GPU_POLICIES: "GpuPolicy"}
    content = json.dumps({**body, "kind": kinds[resource]}).encode()
    answer = client.request("POST", resource.path(NAMESPACE), query={"dryRun": "All"}, body=content)
    return json.loads(answer)["spec"]


def test_the_quotas_of_nos_are_accepted_as_they_are(client):
    quota = yaml.safe_load("{min: {cpu: 2, nos.nebuly.com/gpu-memory: 16}, max: {cpu: 10}}")
    assert dry(client, QUOTAS, quota) == quota
    composite = yaml.safe_load("{namespaces: [team-b, team-c], min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 8}}")
    assert dry(client, COMPOSITES, composite) == composite


def test_every_resource_that_a_pod_may_ask_for_can_have_a_quota(client):
    names = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu", "nvidia.com/gpu.shared")
    names += ("nvidia.com/mig-1g.5gb.me", "nvidia.com/gpu-10gb", "nos.nebuly.com/gpu-memory", "example.com/a_b.C")
    spec = {"min": dict.fromkeys(names, 1), "max": dict.fromkeys(names, "2")}
    assert dry(client, QUOTAS, spec) == spec


def test_a_policy_gets_its_defaults_written_out(client):
    assert dry(client, GPU_POLICIES, {"rules": [{"modes": ["mps"], "mps": {"threads": "proportional"}}, {}]}) == {
        "quota": {"admission": "gate"},
        "rules": [
            {
                "modes": ["mps"],
                "mps": {"hostIPC": True, "threads": "proportional"},
                "privileged": "deny",
                "rounding": "up",
                "visibleDevices": "deny",
                "wholeGpu": "keep",
            },
            {
                "modes": ["mig", "mps"],
                "mps": {"hostIPC": True, "threads": "unlimited"},
                "privileged": "deny",
                "rounding": "up",
                "visibleDevices": "deny",
                "wholeGpu": "keep",
            },
        ],
    }


@pytest.mark.parametrize("whole", ["keep", "deny", {"fraction": "0.5"}, {"memory": "10Gi"}])
def test_each_form_of_whole_gpu_is_kept_as_written(client, whole):
    assert dry(client, GPU_POLICIES, {"rules": [{"wholeGpu": whole}]})["rules"][0]["wholeGpu"] == whole


FAULTS = [
    pytest.param(
        QUOTAS,
        {"min": {"cpu": -1}, "max": {"memory": "-1Gi"}},
        [
            "spec.min[cpu]: Invalid value: -1: an amount must not be negative",
            'spec.max[memory]: Invalid value: "-1Gi": an amount must not be negative',
        ],
        id="negative",
    ),
    pytest.param(QUOTAS, {"min": {"cpu": "many"}}, ['spec.min.cpu: Invalid value: "many"'], id="no-quantity"),
    pytest.param(
        QUOTAS,
        {"min": {"gpu": 1, "nos.nebuly.com/gpus": 1}, "max": {"requests.nvidia.com/gpu": 1, "example.com/": 1}},
        [
            "spec.min: Invalid value: some key is no resource: write cpu, memory, ephemeral-storage or a name with a prefix",
            "spec.min: Invalid value: some key is no resource: of ours there is nos.nebuly.com/gpu-memory",
            "spec.max: Invalid value: some key is no resource: write cpu, memory, ephemeral-storage or a name with a prefix",
            "spec.max: Invalid value: some key is one of a ResourceQuota: leave requests. or limits. out",
        ],
        id="no-resources",
    ),
    pytest.param(COMPOSITES, {"min": {"cpu": 1}}, ["spec.namespaces: Required value"], id="no-namespaces"),
    pytest.param(
        COMPOSITES,
        {"namespaces": ["a", "", "Team", "a"]},
        [
            "spec.namespaces[1]: Invalid value",
            'spec.namespaces[2]: Invalid value: "Team"',
            'spec.namespaces[3]: Duplicate value: "a"',
        ],
        id="no-names-of-namespaces",
    ),
    pytest.param(
        GPU_POLICIES,
        {"rules": [{"modes": ["mig", "mig"]}]},
        ["spec.rules[0].modes: Invalid value: each mode at most once"],
        id="mode-twice",
    ),
    pytest.param(
        GPU_POLICIES,
        {"rules": [{"modes": ["gpu"], "rounding": "down", "limits": {"maxSlicesPerPod": 0}}]},
        [
            'spec.rules[0].modes[0]: Unsupported value: "gpu": supported values: "mig", "mps", "timeslicing"',
            'spec.rules[0].rounding: Unsupported value: "down": supported values: "up", "exact"',
            "spec.rules[0].limits.maxSlicesPerPod: Invalid value: 0",
        ],
        id="all-faults-at-once",
    ),
    *(
        pytest.param(
            GPU_POLICIES,
            {"rules": [{"wholeGpu": whole}]},
            ['"spec.rules[0].wholeGpu" must validate one and only one schema'],
            id=f"whole-gpu-{whole}",
        )
        for whole in ("half", 7, True, [1], {}, {"fraction": "1", "memory": "2"}, {"share": "1"})
    ),
    pytest.param(
        GPU_POLICIES,
        {
            "rules": [
                {"limits": {"minFraction": "2"}},
                {"limits": {"minFraction": "0.5", "maxFraction": "250m"}},
                {"limits": {"maxFraction": "2/1"}},
                {"limits": {"maxFraction": "0"}},
                {"match": {"matchLabels": {"a b": "x"}}},
            ]
        },
        [
            'spec.rules[0].limits.minFraction: Invalid value: "2": a share is more than 0 and at most 1',
            "spec.rules[1].limits.minFraction: Invalid value: minFraction must not be more than maxFraction",
            'spec.rules[2].limits.maxFraction: Invalid value: "2/1": a share is more than 0 and at most 1',
            'spec.rules[3].limits.maxFraction: Invalid value: "0": a share is more than 0 and at most 1',
            "spec.rules[4].match.matchLabels: Invalid value: keys must be those of labels",
        ],
        id="rules-of-cel",
    ),
    pytest.param(
        GPU_POLICIES,
        {
            "rules": [
                {
                    "gpuModels": ["NVIDIA A100", ""],
                    "limits": {"maxFraction": "50%"},
                    "match": {"matchLabels": {"a": "-"}},
                }
            ]
        },
        [
            'spec.rules[0].gpuModels[0]: Invalid value: "NVIDIA A100"',
            "spec.rules[0].gpuModels[1]: Invalid value",
            'spec.rules[0].limits.maxFraction: Invalid value: "50%"',
            'spec.rules[0].match.matchLabels.a: Invalid value: "-"',
        ],
        id="patterns",
    ),
]


@pytest.mark.parametrize(("resource", "spec", "faults"), FAULTS)
def test_faults_that_the_schema_can_see_are_refused_with_their_paths(client, resource, spec, faults):
    with pytest.raises(Invalid) as refusal:
        dry(client, resource, spec)
    for fault in faults:
        assert fault in refusal.value.message.replace("Invalid value: {}: ", "Invalid value: ")
    if resource is GPU_POLICIES:  # nothing that the schema refuses would be followed if it came another way
        assert view_policy(GpuPolicy(metadata=ObjectMeta(), spec=spec)).faults


@pytest.mark.parametrize(
    ("resource", "fields"),
    [
        pytest.param(QUOTAS, {}, id="ElasticQuota"),
        pytest.param(COMPOSITES, {"namespaces": ["a"]}, id="CompositeElasticQuota"),
    ],
)
@pytest.mark.parametrize(
    ("least", "most", "named"),
    [
        pytest.param({"cpu": 12}, {"cpu": "11500m"}, ["cpu"], id="one"),
        pytest.param(
            {"cpu": 12, "memory": "1Gi", "nvidia.com/gpu": 2, "example.com/fpga": 1},
            {"cpu": 10, "memory": "500Mi", "nvidia.com/gpu": 2, "example.com/nic": 0},
            ["cpu", "memory"],
            id="beside those that do not",
        ),
        pytest.param(
            {f"example.com/{number}": 1 for number in range(10, 42)},
            {f"example.com/{number}": 0 for number in range(10, 42)},
            [f"example.com/{number}" for number in range(10, 42)],
            id="as many as a quota may name",
        ),
    ],
)
def test_all_resources_whose_min_exceeds_max_are_named(client, resource, fields, least, most, named):
    """Q34. The API server knows no order of the keys of a map."""
    with pytest.raises(Invalid) as refusal:
        dry(client, resource, {"min": least, "max": most, **fields})
    found = re.search(r"min exceeds max in (\[.*?\]): lower min or raise max", refusal.value.message)
    assert found is not None, refusal.value.message
    assert sorted(json.loads(found[1])) == named


def test_every_way_to_write_a_share_is_accepted(client):
    limits = [
        {"minFraction": "1/7", "maxFraction": "0.5"},
        {"minFraction": ".25"},
        {"maxFraction": "1."},
        {"maxFraction": "250m"},
    ]
    spec = {"rules": [{"limits": each} for each in limits]}
    assert [rule["limits"] for rule in dry(client, GPU_POLICIES, spec)["rules"]] == limits
    assert view_policy(GpuPolicy(metadata=ObjectMeta(), spec=spec)).faults == ()


def test_equal_min_and_max_in_different_units_are_fine(client):
    spec = {"min": {"memory": "1Gi", "cpu": "1"}, "max": {"memory": "1024Mi", "cpu": "1000m"}}
    assert dry(client, QUOTAS, spec) == spec
