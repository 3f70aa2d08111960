import base64
import copy
import datetime as dt

import pytest

from certs.issue import KeyPair, Material, issue_authority, issue_leaf
from certs.keeper import Keeper, Unsettled
from certs.store import CertificateStore
from kube.errors import Unreachable

HOST = "apportion-webhook.apportion-system.svc"
NAMES = (HOST, "127.0.0.1")


@pytest.fixture
def now():
    return dt.datetime.now(dt.UTC)  # the handshake that ends each settling reads the real clock


@pytest.fixture
def material(now):
    authority = issue_authority(now)
    return Material(authority, issue_leaf(authority, NAMES, now))


@pytest.fixture
def keeper(api, now):
    return Keeper(CertificateStore(api, namespace="apportion-system"), NAMES, clock=lambda: now)


def published(api, path):
    return [base64.b64decode(w["clientConfig"].get("caBundle", "")) for w in api.objects[path]["webhooks"]]


def authority_in(api, paths):
    return base64.b64decode(api.objects[paths.secret]["data"]["ca.crt"])


def test_a_first_start_creates_the_secret_and_publishes_its_authority(api, paths, make, keeper):
    api.put(paths.mutating, make.configuration(b"", b""))
    api.put(paths.validating, make.configuration(b""))
    keeper.settle()
    assert api.writes == [("create", paths.secrets), ("json_patch", paths.mutating), ("json_patch", paths.validating)]
    assert published(api, paths.mutating) == [authority_in(api, paths)] * 2
    assert published(api, paths.validating) == [authority_in(api, paths)]
    assert keeper.fault is None
    assert keeper.leaf().certificate == base64.b64decode(api.objects[paths.secret]["data"]["tls.crt"])


def test_only_bundles_change_in_a_configuration(api, paths, make, keeper):
    """C11: no field but caBundle is ours, and a webhook that has the right one is not touched."""
    api.put(paths.mutating, make.configuration(b"", b""))
    before = copy.deepcopy(api.objects[paths.mutating])
    keeper.settle()
    after = copy.deepcopy(api.objects[paths.mutating])
    for webhook in after["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    del before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]
    assert after == before


def test_settling_what_is_settled_writes_nothing(api, paths, make, keeper, material):
    """C11: 100 looks at an unchanged cluster, 0 writes."""
    api.put(paths.secret, make.secret(material))
    api.put(paths.mutating, make.configuration(material.authority.certificate))
    for _ in range(100):
        keeper.settle()
    assert api.writes == []


LEFTOVERS = [
    pytest.param("good", "good", [], id="all-there"),
    pytest.param("good", "none", [("json_patch", "mutating")], id="C12-secret-of-an-earlier-try-new-configuration"),
    pytest.param("good", "old", [("json_patch", "mutating")], id="C12-bundle-of-an-earlier-try"),
    pytest.param("absent", "old", [("create", "secrets"), ("json_patch", "mutating")], id="C12-bundle-without-secret"),
    pytest.param("empty", "old", [("merge_patch", "secret"), ("json_patch", "mutating")], id="C10-emptied-secret"),
    pytest.param("no-data", "none", [("merge_patch", "secret"), ("json_patch", "mutating")], id="C10-secret-no-data"),
    pytest.param("mixed", "good", [("merge_patch", "secret")], id="leaf-of-another-authority"),
    pytest.param("absent", "absent", [("create", "secrets")], id="no-configuration-yet"),
]


@pytest.mark.parametrize(("secret", "bundle", "writes"), LEFTOVERS)
def test_any_leftovers_are_reconciled(api, paths, make, keeper, material, now, secret, bundle, writes):
    other = issue_authority(now)
    secrets = {
        "good": make.secret(material),
        "empty": make.secret(Material(KeyPair(b"", b""), KeyPair(b"", b""))),
        "no-data": {"metadata": {"name": "apportion-webhook-tls"}},
        "mixed": make.secret(Material(material.authority, issue_leaf(other, NAMES, now))),
    }
    bundles = {"good": material.authority.certificate, "none": b"", "old": other.certificate}
    if secret != "absent":
        api.put(paths.secret, secrets[secret])
    if bundle != "absent":
        api.put(paths.mutating, make.configuration(bundles[bundle]))
    keeper.settle()
    assert api.writes == [(verb, getattr(paths, where)) for verb, where in writes]
    assert bundle == "absent" or published(api, paths.mutating) == [authority_in(api, paths)]
    assert keeper.fault is None


def test_a_lost_race_to_create_serves_the_winners_certificate(api, paths, make, keeper, material):
    def other_replica_is_faster():
        api.before_write = lambda: None
        api.put(paths.secret, make.secret(material))

    api.before_write = other_replica_is_faster
    keeper.settle()
    assert keeper.leaf() == material.leaf
    assert api.writes == [("create", paths.secrets)]


def test_a_lost_race_to_mend_keeps_what_the_winner_wrote(api, paths, make, keeper, material):
    api.put(paths.secret, make.secret(Material(KeyPair(b"", b""), KeyPair(b"", b""))))

    def other_replica_is_faster():
        api.before_write = lambda: None
        api.put(paths.secret, make.secret(material))

    api.before_write = other_replica_is_faster
    keeper.settle()
    assert keeper.leaf() == material.leaf
    assert authority_in(api, paths) == material.authority.certificate


def test_a_bundle_is_patched_only_where_it_differs(api, paths, make, keeper, material):
    """C11: a configuration that is right is not written, and in the other only the webhook that is wrong."""
    good = material.authority.certificate
    api.put(paths.secret, make.secret(material))
    api.put(paths.mutating, make.configuration(good, good))
    api.put(paths.validating, make.configuration(good, b"", good))
    keeper.settle()
    assert api.writes == [("json_patch", paths.validating)]
    assert [op["path"] for op in api.operations] == ["/webhooks/1/clientConfig/caBundle"]


def test_a_configuration_that_shrank_meanwhile_is_looked_at_again(api, paths, make, keeper, material):
    api.put(paths.secret, make.secret(material))
    api.put(paths.mutating, make.configuration(material.authority.certificate, b""))

    def configuration_is_applied_anew():
        api.before_write = lambda: None
        api.put(paths.mutating, make.configuration(b""))

    api.before_write = configuration_is_applied_anew
    keeper.settle()
    assert published(api, paths.mutating) == [material.authority.certificate]


def test_two_replicas_agree_whoever_starts_first(api, paths, make, now):
    api.put(paths.mutating, make.configuration(b""))
    keepers = [Keeper(CertificateStore(api, namespace="apportion-system"), NAMES, clock=lambda: now) for _ in range(2)]
    for keeper in (*keepers, *keepers):
        keeper.settle()
    assert keepers[0].leaf() == keepers[1].leaf()
    assert [keeper.fault for keeper in keepers] == [None, None]
    assert len(api.writes) == 2


def test_an_emptied_secret_changes_what_is_served_at_the_next_look(api, paths, make, keeper, material):
    api.put(paths.secret, make.secret(material))
    keeper.settle()
    api.put(paths.secret, make.secret(Material(material.authority, KeyPair(b"", b""))))
    keeper.settle()
    assert keeper.leaf() != material.leaf
    assert authority_in(api, paths) == material.authority.certificate  # clients go on trusting it


def test_someone_who_keeps_changing_the_secret_is_named_not_fought_for_ever(api, paths, make, keeper, material):
    broken = make.secret(Material(KeyPair(b"", b""), KeyPair(b"", b"")))
    api.put(paths.secret, broken)
    api.before_write = lambda: api.put(paths.secret, broken)
    with pytest.raises(Unsettled, match=r"not settled after 8 steps, the last reason AuthorityMissing; .*Conflict"):
        keeper.settle()
    assert len(api.writes) == 8


class Waits:
    """Stands for the stop event: records each pause, and ends the run after so many."""

    def __init__(self, most, between=lambda: None):
        self.most, self.between, self.pauses = most, between, []

    def wait(self, timeout):
        self.pauses.append(timeout)
        self.between()
        return len(self.pauses) >= self.most


def test_without_an_api_server_the_certificate_stays_served_and_tries_grow_rarer(api, paths, make, keeper, material):
    api.put(paths.secret, make.secret(material))

    def goes_away():
        def refuse(path, **_):
            raise Unreachable(f"no answer for {path}")

        api.get = refuse

    waits = Waits(8, between=goes_away)
    keeper.run(waits)
    assert waits.pauses == [5.0, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert keeper.leaf() == material.leaf
    assert keeper.fault is None


def test_a_replica_is_not_ready_before_it_has_a_certificate(keeper):
    assert keeper.fault == "no certificate yet"
    assert keeper.context.current() is None


def test_a_replica_is_not_ready_while_clients_trust_another_authority(api, paths, make, keeper, material):
    """C10: readiness is a handshake with the published bundle."""
    api.put(paths.secret, make.secret(material))
    api.put(paths.mutating, make.configuration(issue_authority(dt.datetime.now(dt.UTC)).certificate))

    def refuse(path, ops):
        raise Unreachable("no answer")

    api.json_patch = refuse
    with pytest.raises(Unreachable):
        keeper.settle()
    assert keeper.leaf() == material.leaf
    assert "certificate verify failed" in keeper.fault


def test_the_keepers_thread_ends_when_told(api, keeper):
    keeper.start()
    keeper.stop()
    keeper._thread.join(5)
    assert not keeper._thread.is_alive()
