"""The agent over a kubelet behind sockets: its passes, and the table of crashes, with gRPC calls in both directions.

These are the tests that the simulated kubelet passes, once more.
"""

import pytest

from tests.agent import test_crashes as crashes
from tests.agent.sockets import SocketKubelet
from tests.agent.test_agent import *  # noqa: F403
from tests.agent.world import World

# This is about a kubelet that takes an hour.
del test_nothing_is_told_before_the_kubelet_agrees_and_a_kubelet_that_never_does_is_named  # noqa: F821


@pytest.fixture(autouse=True)
def sockets(monkeypatch):
    monkeypatch.setattr(World, "_new_kubelet", lambda world, _announced, allocated: SocketKubelet(world, allocated))
    yield
    SocketKubelet.close_all()


@pytest.mark.parametrize("after", [World.restart, World.reboot], ids=["killed", "without-power"])
@pytest.mark.parametrize(("story", "layouts", "allocatable"), crashes.STORIES)
def test_wherever_the_agent_is_killed_the_end_is_the_same(story, layouts, allocatable, after):
    crashes.test_wherever_the_agent_is_killed_the_end_is_the_same(
        story, layouts, allocatable, delay_s=0.0, forgetful=True, after=after
    )
