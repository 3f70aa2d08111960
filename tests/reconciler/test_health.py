"""What probes and Prometheus are told."""

import http.client

import pytest

from reconciler import metrics
from reconciler.health import Pulse, serve


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_a_loop_that_holds_the_lease_without_turning_is_told_to_the_probe(clock):
    pulse = Pulse(clock)
    with serve(0, pulse.alive) as port:
        pulse.beat()
        clock.now = 59.0
        assert get(port, "/healthz") == (200, "ok\n")
        clock.now = 61.0
        assert get(port, "/healthz") == (503, "the loop is stuck\n")
        assert get(port, "/readyz")[0] == 503


def test_a_candidate_that_does_not_lead_is_well(clock):
    pulse = Pulse(clock)
    assert pulse.alive()
    pulse.beat()
    pulse.rest()
    clock.now = 1000.0
    assert pulse.alive()


def test_metrics_are_served_and_other_paths_are_not_there():
    with serve(0, lambda: True) as port:
        status, body = get(port, "/metrics")
        assert status == 200
        assert metrics.LEADING.collect()[0].name in body
        assert get(port, "/")[0] == 404
