import pytest

from policies import names
from policies.spelling import FOREIGN_ANNOTATIONS, FOREIGN_RESOURCES
from policies.templates import KINDS

NAMESPACES = ["kube-system", "apportion-system", "gpu-operator"]

SLICES = {
    "name": "slices.nos.nebuly.com",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {
        "service": {"name": "apportion-webhook", "namespace": "apportion-system", "path": "/mutate", "port": 443}
    },
    "rules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ],
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "reinvocationPolicy": "IfNeeded",
    "sideEffects": "None",
    "timeoutSeconds": 5,
    "namespaceSelector": {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": NAMESPACES}]
    },
    "objectSelector": {},
}
GUARD = {
    **{key: value for key, value in SLICES.items() if key != "reinvocationPolicy"},
    "name": "guard.nos.nebuly.com",
    "clientConfig": {
        "service": {"name": "apportion-webhook", "namespace": "apportion-system", "path": "/validate", "port": 443}
    },
    "rules": [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["pods", "pods/status", "pods/ephemeralcontainers"],
            "scope": "Namespaced",
        }
    ],
}
QUOTA = {
    **SLICES,
    "name": "quota.nos.nebuly.com",
    "rules": [{**SLICES["rules"][0], "operations": ["CREATE"]}],
    "namespaceSelector": {
        "matchExpressions": [
            *SLICES["namespaceSelector"]["matchExpressions"],
            {"key": names.QUOTA_LABEL, "operator": "Exists"},
        ]
    },
}
LATE = {
    **GUARD,
    "name": "late.nos.nebuly.com",
    "rules": [{**GUARD["rules"][0], "operations": ["CREATE"], "resources": ["pods"]}],
}
BINDINGS = {
    **GUARD,
    "name": "bindings.nos.nebuly.com",
    "rules": [{**GUARD["rules"][0], "operations": ["CREATE"], "resources": ["bindings", "pods/binding"]}],
}
RESIZES = {
    **GUARD,
    "name": "resizes.nos.nebuly.com",
    "rules": [{**GUARD["rules"][0], "resources": ["pods/resize"]}],
    "namespaceSelector": QUOTA["namespaceSelector"],
}
TEMPLATES = {
    **SLICES,
    "name": "templates.nos.nebuly.com",
    "rules": [
        {**SLICES["rules"][0], "apiGroups": [group], "resources": resources}
        for group, resources in (
            ("", ["replicationcontrollers"]),
            ("apps", ["deployments", "statefulsets", "daemonsets", "replicasets"]),
            ("batch", ["jobs", "cronjobs"]),
        )
    ],
}
SPACES = {
    **GUARD,
    "name": "namespaces.nos.nebuly.com",
    "rules": [
        {
            **GUARD["rules"][0],
            "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
            "scope": "Cluster",
        }
    ],
    "namespaceSelector": {},
}
QUOTAS = {
    **GUARD,
    "name": "quotas.nos.nebuly.com",
    "rules": [
        {
            "apiGroups": [names.API_GROUP],
            "apiVersions": [names.API_VERSION],
            "operations": ["CREATE", "UPDATE"],
            "resources": ["elasticquotas", "compositeelasticquotas"],
            "scope": "Namespaced",
        }
    ],
    "namespaceSelector": {},
}
POLICIES = {
    **QUOTAS,
    "name": "policies.nos.nebuly.com",
    "rules": [{**QUOTAS["rules"][0], "resources": ["gpupolicies"]}],
}


def without_conditions(webhook):
    return {key: value for key, value in webhook.items() if key != "matchConditions"}


def test_each_webhook_is_configured_as_promised_with_every_default_written_out(base):
    """C06: a field left out is filled in by the API server, and a GitOps tool then sees drift for ever."""
    assert [without_conditions(webhook) for webhook in base.webhooks()] == [
        SLICES,
        QUOTA,
        TEMPLATES,
        GUARD,
        BINDINGS,
        LATE,
        RESIZES,
        SPACES,
        QUOTAS,
        POLICIES,
    ]


def test_one_pod_waits_for_one_mutating_and_one_validating_call_at_most(base):
    """W24, W25: the API server gives up on a request after 30 s, however many webhooks have used it up."""
    slices, quota, _ = base.one("MutatingWebhookConfiguration")["webhooks"]
    of_pods = [webhook for webhook in base.webhooks() if "pods" in webhook["rules"][0]["resources"]]
    assert [webhook["name"].split(".")[0] for webhook in of_pods] == ["slices", "quota", "guard", "late"]
    guard, late = of_pods[2:]
    assert [webhook["rules"][0]["operations"] for webhook in (guard, late)] == [["UPDATE"], ["CREATE"]]
    assert {webhook["timeoutSeconds"] for webhook in base.webhooks()} == {5}
    (naming,) = (c["expression"] for c in slices["matchConditions"] if c["name"] == "created-naming-a-gpu")
    (other,) = (c["expression"] for c in quota["matchConditions"] if c["name"] == "not-created-naming-a-gpu")
    assert naming == f"request.operation != 'CREATE' || {other.removeprefix('!(').removesuffix(')')}"


def test_eviction_of_pods_is_not_hooked_and_bindings_and_status_only_where_they_mark_a_pod(base):
    """W23: a Binding bears no labels of its pod, so its own annotations narrow the hook; schedulers write none."""
    (bindings,) = (webhook for webhook in base.webhooks() if webhook["name"] == BINDINGS["name"])
    assert bindings["matchConditions"][-1]["expression"] == (
        "object.metadata.?annotations.orValue({}).exists(key, key.startsWith('nos.nebuly.com/'))"
    )
    hooked = {resource for webhook in base.webhooks() for rule in webhook["rules"] for resource in rule["resources"]}
    assert hooked == {
        "pods",
        "bindings",
        "pods/binding",
        "pods/status",
        "pods/ephemeralcontainers",
        "pods/resize",
        *(kind.plural for kind in KINDS),
        "namespaces",
        "namespaces/finalize",
        "namespaces/status",
        "elasticquotas",
        "compositeelasticquotas",
        "gpupolicies",
    }


def test_nothing_is_excluded_by_what_users_can_set(base):
    for webhook in base.webhooks():
        assert webhook["objectSelector"] == {}
        assert "priorityClassName" not in str(webhook["matchConditions"])


@pytest.fixture
def conditions(base):
    return {
        condition["name"]: condition["expression"]
        for webhook in base.webhooks()
        for condition in webhook["matchConditions"]
    }


def test_the_conditions_name_what_the_programs_name(conditions):
    created, updated = conditions["created-naming-a-gpu"], conditions["updated-against-our-record"]
    differs = conditions["something-of-ours-differs"]
    for name in (names.PREFIX, names.NVIDIA_PREFIX, names.NOS_SCHEDULER, names.VISIBLE_DEVICES):
        assert f"'{name}'" in created
    assert f"'{names.RECORD}'" in updated
    for name in (*names.OUR_MARKS, names.CAPACITY_LABEL, names.GATE, names.NON_PREEMPTIBLE):
        assert f"'{name}'" in differs
    assert f"'{names.QUOTA_LABEL}'" in conditions["another-quota-label"]
    assert f"'{names.VISIBLE_DEVICES}'" in differs
    assert f"startsWith('{names.MPS_VARIABLES}')" in differs
    for condition in (updated, conditions["not-ours"]):
        assert f"startsWith('system:serviceaccount:{names.SYSTEM_NAMESPACE}:')" in condition


def test_the_condition_on_templates_knows_where_every_kind_has_its_template(base, conditions):
    (rules,) = (webhook["rules"] for webhook in base.webhooks() if webhook["name"].startswith("templates."))
    hooked = {(group, plural) for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}
    assert hooked == {(kind.group, kind.plural) for kind in KINDS}
    for kind in KINDS:
        assert f"object.?{'.?'.join(kind.template)}" in conditions["a-share-in-the-template"]
    for name in (names.FRACTION, names.MEMORY, names.GPU, names.MIG_RESOURCE):
        assert f"'{name}'" in conditions["a-share-in-the-template"]


@pytest.mark.parametrize("key", [*FOREIGN_ANNOTATIONS, *FOREIGN_RESOURCES])
def test_pods_with_known_keys_of_other_tools_are_seen(conditions, key):
    """Else the warning about them could never be given."""
    created = conditions["created-naming-a-gpu"]
    prefix = key.split("-")[0] if key.startswith("volcano.sh/") else key.split("/")[0] + "/"
    assert f"'{key}'" in created or f"startsWith('{prefix}" in created


def test_the_call_goes_to_a_port_that_the_webhook_serves(base):
    """I03: configuration, Service and container agree on names and ports."""
    service = base.one("Service", "webhook")
    (port,) = service["spec"]["ports"]
    (container,) = base.one("Deployment", "webhook")["spec"]["template"]["spec"]["containers"]
    assert {one["name"]: one["containerPort"] for one in container["ports"]}[port["targetPort"]] == 8443
    for webhook in base.webhooks():
        assert webhook["clientConfig"]["service"]["port"] == port["port"]


@pytest.mark.parametrize("rendering", ["base", "renamed"])
def test_configuration_service_and_certificate_agree_on_names(rendering, request):
    """I03: also if an overlay changes names and namespace; the certificate's name is made of these variables."""
    rendered = request.getfixturevalue(rendering)
    service = rendered.one("Service", "webhook")["metadata"]
    deployment = rendered.one("Deployment", "webhook")
    assert deployment["metadata"]["namespace"] == service["namespace"]
    for webhook in rendered.webhooks():
        called = webhook["clientConfig"]["service"]
        assert (called["name"], called["namespace"]) == (service["name"], service["namespace"])
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
    assert env["APPORTION_SERVICE"] == service["name"]
    assert env["APPORTION_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    configuration = rendered.one("MutatingWebhookConfiguration")["metadata"]["name"]
    assert rendered.one("ValidatingWebhookConfiguration")["metadata"]["name"] == configuration
    assert env["APPORTION_CONFIGURATION"] == configuration
    (rule,) = [rule for rule in rendered.one("ClusterRole", "webhook")["rules"] if "resourceNames" in rule]
    assert rule["resourceNames"] == [configuration]
