"""ConfigMaps of our namespace, as agents read them."""

import pytest

from reconciler.agent.fixed.configmaps import FRESH_S, KubeConfigMaps
from reconciler.agent.fixed.files import ConfigMapError
from tests.apiserver.steps import refusal

PATH = "/api/v1/namespaces/apportion-system/configmaps/plugins"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def answer(body):
    return lambda _, wire: wire.json(200, body)


def test_a_config_map_is_read_again_after_a_while(server, client, clock):
    server.route("GET", PATH, answer({"data": {"a": "1"}}))
    read = KubeConfigMaps(client, clock)
    assert read("plugins") == {"a": "1"}
    server.route("GET", PATH, answer({"data": {"a": "2"}}))
    clock.now += FRESH_S - 0.1
    assert read("plugins") == {"a": "1"}
    clock.now += 0.1
    assert read("plugins") == {"a": "2"}


def test_one_without_data_is_empty(server, client, clock):
    server.route("GET", PATH, answer({"metadata": {"name": "plugins"}}))
    assert KubeConfigMaps(client, clock)("plugins") == {}


@pytest.mark.parametrize(
    ("step", "why"),
    [
        pytest.param(refusal(404, "NotFound"), "there is none: create it, or take the label from the node", id="gone"),
        pytest.param(refusal(403, "Forbidden"), "cannot be read: ", id="no-right"),
        pytest.param(answer({"data": {"a": 1}}), "cannot be read: ", id="no-config-map"),
    ],
)
def test_what_keeps_it_from_being_read_is_told(server, client, clock, step, why):
    server.route("GET", PATH, step)
    with pytest.raises(ConfigMapError, match=why):
        KubeConfigMaps(client, clock)("plugins")
