"""What is said on objects is written at leisure, and no failure holds up the others for long."""

import pytest

from kube.client import MERGE_PATCH
from reconciler.scribe import Difference, Scribe
from tests.apiserver.steps import refusal

ONE, OTHER = "/api/v1/namespaces/one", "/api/v1/namespaces/other"


def cut(_, wire):
    wire.cut()


def fine(_, wire):
    wire.json(200, {})


@pytest.fixture
def world(client):
    return World(client)


class World:
    """A scribe with two things to say that no answer makes true, at a time that the test moves."""

    def __init__(self, client, at_most=9):
        self.now, self.written = 1000.0, []
        self.scribe = Scribe(
            client,
            "test",
            lambda: (self.difference(path) for path in (ONE, OTHER)),
            every_s=1.0,
            at_most=at_most,
            held=lambda: True,
            clock=lambda: self.now,
        )

    def difference(self, path):
        return Difference(path=path, patch=MERGE_PATCH, body={}, written=lambda _: self.written.append(path))


def test_without_an_answer_the_round_ends_and_the_next_one_goes_on_with_the_others(server, world):
    """Else each of a hundred writes waits until it times out."""
    server.route("PATCH", ONE, cut, fine)
    server.route("PATCH", OTHER, fine)
    world.scribe.tick()
    assert (server.asked("PATCH", OTHER), world.written) == ([], [])
    world.scribe.tick()
    assert world.written == [OTHER]
    world.now += 1.0
    world.scribe.tick()
    assert world.written == [OTHER, ONE, OTHER]


def test_what_keeps_failing_is_tried_at_a_rate_that_falls_off(server, world):
    server.route("PATCH", ONE, refusal(403, "Forbidden"))
    server.route("PATCH", OTHER, fine)
    for _ in range(120):
        world.scribe.tick()
        world.now += 0.5
    assert len(server.asked("PATCH", ONE)) == 6  # after 0, 1, 3, 7, 15 and 31 s
    assert len(server.asked("PATCH", OTHER)) == 120


def test_what_the_server_asks_for_is_heeded(server, world):
    server.route("PATCH", ONE, refusal(429, "TooManyRequests", {"Retry-After": "7"}))
    server.route("PATCH", OTHER, fine)
    for _ in range(7):
        world.scribe.tick()
        world.now += 1.0
    assert len(server.asked("PATCH", ONE)) == 1


def test_what_one_round_may_not_write_is_for_the_next(server, client):
    world = World(client, at_most=1)
    server.route("PATCH", ONE, fine)
    world.scribe.tick()
    assert world.written == [ONE]
