"""A pass that raises what nobody expects: the node says so, offers no more than the kubelet gives, and is looked at again."""

import pytest
from structlog.testing import capture_logs

from tests.agent.test_service import Cluster
from tests.agent.world import World
from tests.apiserver.server import ApiServer

ONE = "nvidia.com/mig-1g.5gb"


class Broken:
    """A driver with a fault that nothing in it foresees, until it is mended."""

    def __init__(self, driver):
        self._driver, self.mended = driver, False

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def boards(self):
        if not self.mended:
            raise ZeroDivisionError("division by zero")
        return self._driver.boards()


def break_(agent):
    """Put such a driver under an agent, and return it."""
    agent._boards._driver = Broken(agent._boards._driver)
    return agent._boards._driver


def failed(world):
    """Run a pass that raises; return what is said of the node then."""
    with pytest.raises(ZeroDivisionError) as caught:
        world.act()
    return world.agent.failed(world.read(), caught.value, world.now)


def test_reason_place_and_way_out_are_in_the_condition_and_what_the_kubelet_gives_stays():
    world = World({0: [("1g.5gb", 0), ("1g.5gb", 1)]})
    break_(world.agent)
    patch = failed(world)
    (condition,) = patch["status"].pop("conditions")
    assert (condition["status"], condition["reason"]) == ("False", "AgentFailed")
    assert condition["message"].startswith("ZeroDivisionError: division by zero (test_pass_failed.py, line ")
    assert condition["message"].endswith(
        "): the agent tries again, up to once a minute; if it stays, it is a fault of Apportion: report it, with pass_failed "
        "of the agent's log"
    )
    assert patch["status"] == {}, "two are announced, and given"


def test_an_agent_that_has_announced_nothing_yet_offers_nothing():
    world = World({0: [("1g.5gb", 0), ("1g.5gb", 1)]}, forgetful=True)
    world.restart()
    break_(world.agent)
    assert failed(world)["status"]["allocatable"] == {ONE: "0"}


def test_the_node_says_so_until_a_pass_comes_to_its_end(tmp_path):
    with ApiServer() as server, capture_logs() as logs:
        cluster, broken = Cluster(server, tmp_path), []

        def breaks(node, pods):
            agent = cluster.agent(node, pods)
            broken.append(break_(agent))
            return agent

        service = cluster.service
        service._make_agent = breaks
        service.start()
        assert cluster.next_patch()["status"]["conditions"][0]["reason"] == "AgentFailed"
        assert not service.ready()
        broken[0].mended = True
        patch = cluster.next_patch()
        assert patch["status"]["conditions"][0]["reason"] == "BoardsReady", "without anything from outside"
        broken[0].mended = False
        service.resync()
        assert cluster.next_patch()["status"]["conditions"][0]["reason"] == "AgentFailed"
        while service.ready():
            pass
        broken[0].mended = True
        assert cluster.next_patch()["status"]["conditions"][0]["reason"] == "BoardsReady"
        cluster.nodes.end()
        cluster.pods.end()
        service.stop()
        assert service.ready()
        cluster.client.close()
    assert "pass_failed" in {entry["event"] for entry in logs}
