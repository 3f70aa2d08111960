"""What is asked of the API server itself where a watch may tell too late."""

import pytest

from reconciler.cluster import Cluster
from tests.apiserver.steps import listing, refusal
from tests.builders import raw_pod

ELASTIC = "/apis/nos.nebuly.com/v1alpha1/elasticquotas"
COMPOSITE = "/apis/nos.nebuly.com/v1alpha1/compositeelasticquotas"


def free(name="train", version="2", **fields):
    return raw_pod(f"team-a/{name}", limits={"nvidia.com/mig-1g.5gb": "1"}, version=version, **fields)


def answer(obj):
    return lambda _, wire: wire.json(200, obj)


def cut(_, wire):
    wire.cut()


@pytest.fixture
def cluster(client):
    return Cluster(client)


def test_the_pods_of_a_node_are_read_afresh_page_by_page(server, cluster):
    bound = free(version="6", node="n1")
    pages = (
        answer(
            {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [free("new", version="7", node="n1")]}
        ),
        answer({"metadata": {"resourceVersion": "9"}, "items": [bound]}),
    )
    server.route("GET", "/api/v1/pods", *pages)
    assert cluster.read_pods_of("n1", 5.0)
    assert [r.query.get("fieldSelector") for r in server.requests] == ["spec.nodeName=n1", "spec.nodeName=n1"]
    assert cluster.pods.store.get("team-a/train").node == "n1"
    assert cluster.pods.store.get("team-a/new").node == "n1"


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(refusal(500, "InternalError"), id="the server fails"),
        pytest.param(cut, id="the connection breaks"),
        pytest.param(
            answer({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "x"}}]}),
            id="a pod that cannot be read",
        ),
    ],
)
def test_pods_that_could_not_be_read_allow_no_cut(server, cluster, failure):
    server.route("GET", "/api/v1/pods", failure)
    assert not cluster.read_pods_of("n1", 5.0)


def test_quotas_are_seen_as_they_are_before_their_watch_tells(server, cluster):
    metadata = {"name": "quota", "namespace": "team-a", "uid": "q", "resourceVersion": "7"}
    server.route("GET", ELASTIC, listing([{"metadata": metadata, "spec": {"min": {"nvidia.com/gpu": 1}}}], 9))
    server.route("GET", COMPOSITE, listing([], 9))
    assert cluster.read_quotas(5.0)
    assert list(cluster.look(0.0, {}).governed.by_namespace) == ["team-a"]


def test_quotas_that_could_not_be_read_are_said_to_be_unknown(server, cluster):
    server.route("GET", ELASTIC, listing([], 9))
    server.route("GET", COMPOSITE, cut)
    assert not cluster.read_quotas(5.0)
