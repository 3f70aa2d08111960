"""The same code against a real kube-apiserver: what the scripted one only imitates."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Iterator

import msgspec
import pytest

from console.sandbox.lifecycle import Sandbox
from kube.client import Client
from kube.errors import Conflict, Invalid, NotFound, TimedOut
from kube.events import EventRecorder, ObjectRef
from kube.informer import Informer
from kube.lease import Elector, Leadership
from kube.resource import EVENTS, LEASES, Resource, read_meta
from tests.apiserver.server import PATIENCE_S

pytestmark = pytest.mark.sandbox

CONFIGMAPS = Resource("", "v1", "configmaps", namespaced=True)
THINGS = CONFIGMAPS.path("default")
THING = CONFIGMAPS.path("default", "thing")


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


_DECODER = msgspec.json.Decoder(_ConfigMap)


def value_of(raw: bytes) -> str | None:
    return (_DECODER.decode(raw).data or {}).get("value")


def thing(value: str) -> dict[str, object]:
    return {"metadata": {"name": "thing"}, "data": {"value": value}}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox.start(services=()) as running:
        yield running


@pytest.fixture
def client(sandbox: Sandbox) -> Iterator[Client]:
    connected = Client.load(str(sandbox.kubeconfig), user_agent="apportion-test/1")
    yield connected
    for path in (THING, LEASES.path("default", "leader")):
        with contextlib.suppress(NotFound):
            connected.delete(path)
    connected.close()


def test_an_informer_follows_what_happens_and_own_writes_pass_through_it(client: Client) -> None:
    told: queue.Queue[tuple[str, str | None, str | None]] = queue.Queue()
    informer = Informer(client, CONFIGMAPS, value_of, namespace="default")
    informer.on_change(lambda key, old, new: told.put((key, old, new)))
    informer.start()
    assert informer.synced.wait(PATIENCE_S)
    client.create(THINGS, thing("0"))
    for number in range(1, 20):
        informer.lay_over(client.merge_patch(THING, thing(str(number))))
        assert informer.store.get("default/thing") == str(number)
    client.delete(THING)
    changes = [told.get(timeout=PATIENCE_S) for _ in range(21)]
    values = [None, *(str(number) for number in range(20)), None]
    assert changes == [("default/thing", old, new) for old, new in itertools.pairwise(values)]
    assert informer.store.list() == ()
    informer.stop()


def test_refusals_have_the_types_that_callers_rely_on(client: Client) -> None:
    created = client.create(THINGS, thing("0"))
    with pytest.raises(Conflict) as exists:
        client.create(THINGS, thing("0"))
    assert exists.value.reason == "AlreadyExists"
    stale = read_meta(created).resource_version
    client.merge_patch(THING, thing("1"))
    with pytest.raises(Conflict) as changed:
        client.merge_patch(THING, {"metadata": {"resourceVersion": stale}, "data": {"value": "2"}})
    assert changed.value.reason == "Conflict"
    with pytest.raises(Invalid):
        client.json_patch(THING, [{"op": "test", "path": "/data/value", "value": "other"}])
    with pytest.raises(NotFound):
        client.get(CONFIGMAPS.path("default", "nothing"))


def test_a_watch_from_a_version_of_the_future_is_silent_which_is_why_silence_means_listing_again(
    client: Client,
) -> None:
    query = {"resourceVersion": "999999999", "allowWatchBookmarks": "true"}
    with client.watch(THINGS, query, 0.5) as stream:
        client.create(THINGS, thing("0"))
        with pytest.raises(TimedOut):
            list(stream)


def test_a_patch_is_owned_by_the_manager_that_the_user_agent_names(client: Client) -> None:
    client.create(THINGS, thing("0"))
    patched = client.merge_patch(THING, thing("1"))
    owners = msgspec.json.decode(patched)["metadata"]["managedFields"]
    assert [owner["manager"] for owner in owners] == ["apportion-test"]


def test_candidates_lead_one_after_another(client: Client) -> None:
    led: list[str] = []
    leading = threading.Lock()

    def work(leadership: Leadership, name: str) -> None:
        assert leading.acquire(blocking=False), "nobody else leads"
        led.append(name)
        leadership.lost.wait(0.3)
        assert leadership.held()
        leading.release()

    def stand(name: str) -> None:
        elector = Elector(client, "default", "leader", name, retry_s=0.1)
        elector.run(lambda leadership: work(leadership, name), threading.Event())

    threads = [threading.Thread(target=stand, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(led) == ["a", "b"]
    lease = msgspec.json.decode(client.get(LEASES.path("default", "leader")))["spec"]
    assert "holderIdentity" not in lease
    assert lease["leaseTransitions"] == 1


def test_repeats_of_an_event_are_counted(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kube.events.CLOSE_S", PATIENCE_S)
    uid = read_meta(client.create(THINGS, thing("0"))).uid
    ref = ObjectRef(api_version="v1", kind="ConfigMap", name="thing", namespace="default", uid=uid)
    recorder = EventRecorder(client, "apportion-test")
    for _ in range(3):
        recorder.record(ref, "Normal", "Tried", "three times")
    recorder.close()
    items = msgspec.json.decode(client.get(EVENTS.path("default"), fieldSelector=f"involvedObject.uid={uid}"))["items"]
    assert [(item["reason"], item["count"], item["source"]["component"]) for item in items] == [
        ("Tried", 3, "apportion-test")
    ]
