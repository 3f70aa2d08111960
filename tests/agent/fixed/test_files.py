"""The files that a node names by its labels."""

import pytest

from policies import names
from reconciler.agent.fixed.files import ConfigMapError, Files, NodeFiles
from reconciler.agent.fixed.pluginconfig import PluginConfig

PLUGIN, KEY, PARTED, CONFIG = (
    names.PLUGIN_CONFIGS_LABEL, names.PLUGIN_CONFIG_LABEL, names.MIG_PARTED_LABEL, names.MIG_CONFIG_LABEL,
)  # fmt: skip
EMPTY, MIXED = "version: v1", "version: v1\nflags: {migStrategy: mixed}"
MAPS = {
    "one": {"default": MIXED},
    "two": {"a": EMPTY, "b": MIXED},
    "parted": {"config.yaml": "version: v1\nmig-configs: {all-1g.5gb: []}"},
    "bad": {"a": "version: v2\nflags: {migStrategy: both}"},
}


def config_map(name):
    if name not in MAPS:
        raise ConfigMapError("there is none")
    return MAPS[name]


def read(**labels):
    faults = []
    return NodeFiles(config_map).read(labels, faults), faults


@pytest.mark.parametrize(
    ("labels", "files"),
    [
        pytest.param({}, Files(), id="none"),
        pytest.param({PLUGIN: "one"}, Files(plugin=PluginConfig(strategy="mixed")), id="the-only-key"),
        pytest.param(
            {PLUGIN: "two", KEY: "b"}, Files(plugin=PluginConfig(strategy="mixed")), id="the-key-of-the-label"
        ),
        pytest.param({PARTED: "parted", CONFIG: "all-1g.5gb"}, Files(rules=()), id="mig-parted"),
        pytest.param({KEY: "n1-1674", CONFIG: "all-disabled"}, Files(), id="labels-that-nos-and-the-operator-leave"),
    ],
)
def test_labels_name_the_files(labels, files):
    assert read(**labels) == (files, [])


@pytest.mark.parametrize(
    ("labels", "faults"),
    [
        pytest.param({PLUGIN: "none"}, ["ConfigMap apportion-system/none: there is none"], id="no-config-map"),
        pytest.param(
            {PLUGIN: "two"},
            [
                "ConfigMap apportion-system/two: name one of its keys by the label nvidia.com/device-plugin.config: there are a, b"
            ],
            id="which-key",
        ),
        pytest.param(
            {PLUGIN: "one", KEY: "n1-1674"},
            ["ConfigMap apportion-system/one: no key n1-1674: there are default"],
            id="no-key",
        ),
        pytest.param(
            {PARTED: "parted"},
            [
                "label nvidia.com/mig.config: missing: which configuration of ConfigMap apportion-system/parted is meant?"
            ],
            id="which-configuration",
        ),
        pytest.param(
            {PLUGIN: "bad", PARTED: "parted", CONFIG: "x"},
            [
                "ConfigMap apportion-system/bad, a: version: v2: must be one of v1",
                "ConfigMap apportion-system/bad, a: flags.migStrategy: both: must be one of mixed, none, single",
                "ConfigMap apportion-system/parted, config.yaml: mig-configs: there is no x: there are all-1g.5gb",
            ],
            id="faults-of-both-at-once",
        ),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(labels, faults):
    assert read(**labels)[1] == faults


def test_a_file_is_read_again_when_its_text_has_changed():
    """NVIDIA's config-manager does nothing as long as the key stays the same."""
    data = {"a": EMPTY}
    files = NodeFiles(lambda _name: data)
    assert files.read({PLUGIN: "x"}, []) == Files(plugin=PluginConfig())
    data["a"] = MIXED
    assert files.read({PLUGIN: "x"}, []) == Files(plugin=PluginConfig(strategy="mixed"))
    data["a"] = "version: v2"
    told = []
    assert files.read({PLUGIN: "x"}, told) == files.read({PLUGIN: "x"}, []) == Files()
    assert told == ["ConfigMap apportion-system/x, a: version: v2: must be one of v1"]
