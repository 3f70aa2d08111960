"""What of nos is found in a cluster."""

import pytest

from kube.errors import ApiError
from reconciler.rivals import find_rivals
from tests.apiserver.steps import refusal

DEPLOYMENTS, DAEMONSETS = "/apis/apps/v1/deployments", "/apis/apps/v1/daemonsets"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def items(*objects):
    return lambda _, wire: wire.json(200, {"items": list(objects)})


def workload(name):
    return {"metadata": {"name": name, "namespace": "nebuly-nos"}}


def webhooks(name, *client_configs):
    return {"metadata": {"name": name}, "webhooks": [{"clientConfig": config} for config in client_configs]}


NOS_PATH = {"service": {"name": "nos-operator-webhook", "path": "/validate-nos-nebuly-com-v1alpha1-elasticquota"}}


@pytest.mark.parametrize(
    ("deployments", "daemonsets", "configurations", "expected"),
    [
        pytest.param([], [], [], (), id="nothing"),
        pytest.param(
            [workload("nos-gpu-partitioner")],
            [workload("nos-mig-agent")],
            [],
            ("daemonsets nebuly-nos/nos-mig-agent", "deployments nebuly-nos/nos-gpu-partitioner"),
            id="partitioner and agent",
        ),
        pytest.param(
            [],
            [],
            [webhooks("validating-webhook-configuration", NOS_PATH)],
            ("validatingwebhookconfigurations validating-webhook-configuration",),
            id="webhooks that its chart left behind",
        ),
        pytest.param(
            [],
            [],
            [
                webhooks("ours", {"service": {"name": "apportion-webhook", "path": "/validate"}}),
                webhooks("by-url", {"url": "https://127.0.0.1/validate-nos-nebuly-com-v1alpha1-elasticquota"}),
                webhooks("without-path", {"service": {"name": "x"}}),
                webhooks("empty"),
            ],
            (),
            id="webhooks of others",
        ),
    ],
)
def test_workloads_are_known_by_label_and_webhooks_by_path(
    server, client, deployments, daemonsets, configurations, expected
):
    server.route("GET", DEPLOYMENTS, items(*deployments))
    server.route("GET", DAEMONSETS, items(*daemonsets))
    server.route("GET", WEBHOOKS, items(*configurations))
    assert find_rivals(client) == expected
    [asked] = server.asked("GET", DEPLOYMENTS)
    assert asked.query == {
        "labelSelector": "app.kubernetes.io/part-of=nos,"
        "app.kubernetes.io/component in (gpu-partitioner,mig-agent,gpu-agent,operator)"
    }


def test_not_being_allowed_to_look_is_an_error_of_its_own(server, client):
    server.route("GET", DEPLOYMENTS, refusal(403, "Forbidden"))
    with pytest.raises(ApiError):
        find_rivals(client)
