import itertools
import os

import click
import pytest
import yaml

from certs.store import SECRET
from policies.policy import BUILT_IN
from reconciler.__main__ import LEASE
from reconciler.__main__ import main as reconciler
from reconciler.agent.__main__ import main as agent
from webhook.__main__ import main as webhook

CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "Namespace",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}


def test_rendering_twice_gives_the_same_bytes(text, root, kustomize):
    """C05: nothing in it is made anew at each sync."""
    assert kustomize(root / "base") == text


def test_no_certificate_material_is_rendered(base, text):
    """C03, C05, C10: an apply must never replace a certificate that the processes keep."""
    assert base.of("Secret") == []
    for word in ("caBundle:", "BEGIN CERTIFICATE", "PRIVATE KEY", "tls.crt"):
        assert word not in text


def test_nothing_must_run_before_the_webhook_serves(base):
    """I01: no Job of ours waits for the webhook that waits for it."""
    assert base.of("Job", "CronJob", "Pod") == []


def test_no_configuration_of_users_is_shipped(base):
    """I08: what users edit is never overwritten by what we ship."""
    assert base.of("ConfigMap", "GpuPolicy", "ElasticQuota", "CompositeElasticQuota") == []


def test_every_object_says_where_it_lies(base):
    for one in base:
        expected = None if one["kind"] in CLUSTER_SCOPED else "apportion-system"
        assert one["metadata"].get("namespace") == expected, one["metadata"]["name"]


OVERLAY = {"resources": "base", "components": "components/nvidia-runtime-class"}


def workloads(text):
    found = [one for one in yaml.safe_load_all(text) if one["kind"] in ("Deployment", "DaemonSet")]
    return sorted(found, key=lambda one: one["kind"], reverse=True)


def matches(selector, labels):
    return selector.items() <= labels.items()


def test_no_two_selectors_overlap(base):
    """I06: two workloads with one selector fight over each other's pods."""
    templates = {w["metadata"]["name"]: w["spec"]["template"]["metadata"]["labels"] for w in base.workloads()}
    selectors = {w["metadata"]["name"]: w["spec"]["selector"]["matchLabels"] for w in base.workloads()}
    assert set(templates) == {"apportion-webhook", "apportion-reconciler", "apportion-agent"}
    for one, other in itertools.product(selectors, templates):
        assert matches(selectors[one], templates[other]) is (one == other)
    for selector in (
        base.one("Service", "webhook")["spec"]["selector"],
        base.one("PodDisruptionBudget", "webhook")["spec"]["selector"]["matchLabels"],
    ):
        assert [name for name, labels in templates.items() if matches(selector, labels)] == ["apportion-webhook"]


def test_the_webhook_survives_the_loss_of_a_replica(base):
    """I09"""
    spec = base.one("Deployment", "webhook")["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert base.one("PodDisruptionBudget", "webhook")["spec"]["minAvailable"] == 1
    (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert matches(term["podAffinityTerm"]["labelSelector"]["matchLabels"], spec["template"]["metadata"]["labels"])


def test_the_webhook_ends_in_its_own_time(base):
    """I09: drain, then the last requests (10 s), before the kubelet kills it."""
    spec = base.one("Deployment", "webhook")["spec"]["template"]["spec"]
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert float(env["APPORTION_DRAIN_SECONDS"]) == 8
    assert float(env["APPORTION_DRAIN_SECONDS"]) + 10 < spec["terminationGracePeriodSeconds"]


def test_probes_ask_the_real_server(base):
    """W28, W40: readiness is asked on the port that the API server calls."""
    (container,) = base.one("Deployment", "webhook")["spec"]["template"]["spec"]["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert {(probe["scheme"], probe["port"]) for probe in probes.values()} == {("HTTPS", "https")}


def test_the_agent_runs_on_every_labelled_node_whatever_its_taints(base):
    """I05"""
    spec = base.one("DaemonSet", "agent")["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {
            "matchExpressions": [
                {
                    "key": "nos.nebuly.com/gpu-partitioning",
                    "operator": "In",
                    "values": ["mig", "mps", "timeslicing"],
                }
            ]
        }
    ]


def test_the_agent_has_the_shared_memory_of_the_node_as_the_clients_of_its_daemons_have(base):
    """Also where the daemons run among its own files, because the driver lies in a container."""
    spec = base.one("DaemonSet", "agent")["spec"]["template"]["spec"]
    (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["mountPath"] == "/dev/shm"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume["hostPath"] == {"path": "/dev/shm", "type": "Directory"}


def test_the_agent_gets_the_runtime_class_of_nvidia_where_an_overlay_says_so(base, root, kustomize, tmp_path):
    assert "runtimeClassName" not in base.one("DaemonSet", "agent")["spec"]["template"]["spec"]
    parts = {name: [os.path.relpath(root / path, tmp_path.resolve())] for name, path in OVERLAY.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    classes = [one["spec"]["template"]["spec"].get("runtimeClassName") for one in workloads(kustomize(tmp_path))]
    assert classes == [None, None, "nvidia"]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        pytest.param("webhook", webhook, id="webhook"),
        pytest.param("reconciler", reconciler, id="reconciler"),
        pytest.param("agent", agent, id="agent"),
    ],
)
def test_each_variable_is_an_option_of_its_program(base, name, command: click.Command):
    workload = base.one("DaemonSet" if name == "agent" else "Deployment", name)
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "apportion:0.1.0"
    options = {f"APPORTION_{parameter.name.upper()}" for parameter in command.params}
    ours = {one["name"] for one in container["env"] if one["name"].startswith("APPORTION_")}
    assert ours <= options


def test_only_the_agent_is_privileged(base):
    for workload in base.workloads():
        for container in workload["spec"]["template"]["spec"]["containers"]:
            context = container["securityContext"]
            if workload["kind"] == "DaemonSet":
                # The image's own user is nobody: privileged without root can do nothing with devices.
                root = {"runAsUser": 0, "runAsGroup": 0}
                assert context == {"privileged": True, "readOnlyRootFilesystem": True, **root}
            else:
                assert context["readOnlyRootFilesystem"] is True
                assert context["capabilities"] == {"drop": ["ALL"]}


READ = "get list watch"
RIGHTS = {
    "webhook": {
        ("", "nodes"): READ,
        ("", "namespaces"): READ,
        ("nos.nebuly.com", "elasticquotas"): READ,
        ("nos.nebuly.com", "compositeelasticquotas"): READ,
        ("nos.nebuly.com", "gpupolicies"): READ,
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations/apportion"): "get patch",
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations/apportion"): "get patch",
        ("", "apportion-system:secrets"): "create",
        ("", f"apportion-system:secrets/{SECRET}"): "get patch",
    },
    "reconciler": {
        ("", "pods"): READ + " patch",
        ("", "nodes"): READ + " patch",
        ("", "namespaces"): READ + " patch",
        ("nos.nebuly.com", "elasticquotas"): READ,
        ("nos.nebuly.com", "compositeelasticquotas"): READ,
        ("nos.nebuly.com", "gpupolicies"): READ,
        ("policy", "poddisruptionbudgets"): READ,
        ("", "pods/eviction"): "create",
        ("", "pods/status"): "patch",
        ("", "nodes/status"): "patch",
        ("nos.nebuly.com", "elasticquotas/status"): "patch",
        ("nos.nebuly.com", "compositeelasticquotas/status"): "patch",
        ("nos.nebuly.com", "gpupolicies/status"): "patch",
        ("", "events"): "create patch",
        ("apps", "deployments"): "list",
        ("apps", "daemonsets"): "list",
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): "list",
        ("coordination.k8s.io", "apportion-system:leases"): "create",
        ("coordination.k8s.io", f"apportion-system:leases/{LEASE}"): "get patch",
    },
    "agent": {
        ("", "nodes"): "list watch",
        ("", "pods"): "list watch",
        ("", "nodes/status"): "patch",
        ("", "events"): "create patch",
        ("", "apportion-system:configmaps"): "get",
    },
}


@pytest.mark.parametrize("account", RIGHTS)
def test_each_account_has_these_rights_and_no_others(base, account):
    rights: dict[tuple[str, str], set[str]] = {}
    for binding in base.of("ClusterRoleBinding", "RoleBinding"):
        if {"kind": "ServiceAccount", "name": f"apportion-{account}", "namespace": "apportion-system"} not in binding[
            "subjects"
        ]:
            continue
        (role,) = [
            one for one in base.of(binding["roleRef"]["kind"]) if one["metadata"]["name"] == binding["roleRef"]["name"]
        ]
        where = "apportion-system:" if role["kind"] == "Role" else ""
        for rule in role["rules"]:
            for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
                for name in rule.get("resourceNames", [""]):
                    at = f"{where}{resource}/{name}".rstrip("/")
                    rights.setdefault((group, at), set()).update(rule["verbs"])
    assert {key: " ".join(sorted(verbs)) for key, verbs in rights.items()} == {
        key: " ".join(sorted(verbs.split())) for key, verbs in RIGHTS[account].items()
    }


def test_no_role_is_aggregated_to_those_of_users(base):
    """Who writes policies and quotas decides on isolation."""
    for role in base.of("ClusterRole"):
        assert "aggregationRule" not in role
        assert not [label for label in role["metadata"]["labels"] if "aggregate-to" in label]


@pytest.mark.parametrize(
    ("plural", "short"), [("elasticquotas", "eq"), ("compositeelasticquotas", "ceq"), ("gpupolicies", "gp")]
)
def test_each_kind_keeps_its_short_name_and_reports_by_its_status(base, plural, short):
    (spec,) = [one["spec"] for one in base.of("CustomResourceDefinition") if one["spec"]["names"]["plural"] == plural]
    (version,) = spec["versions"]
    assert (spec["group"], spec["scope"], version["name"]) == ("nos.nebuly.com", "Namespaced", "v1alpha1")
    assert short in spec["names"]["shortNames"]
    assert version["subresources"] == {"status": {}}
    assert "conditions" in version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]


def test_the_defaults_of_a_policy_are_those_of_the_built_in_rule(base):
    """Simulated from a file, a policy gets the rule's defaults; in a cluster, those of its schema."""
    (crd,) = [one for one in base.of("CustomResourceDefinition") if one["spec"]["names"]["kind"] == "GpuPolicy"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    rule = schema["rules"]["items"]["properties"]
    assert tuple(rule["modes"]["default"]) == BUILT_IN.modes
    assert set(rule["modes"]["items"]["enum"]) == set(BUILT_IN.nameable)
    assert rule["mps"]["properties"]["hostIPC"]["default"] is BUILT_IN.host_ipc
    assert (rule["visibleDevices"]["default"] == "allow") is BUILT_IN.visible_devices
    assert (rule["privileged"]["default"] == "allow") is BUILT_IN.privileged
