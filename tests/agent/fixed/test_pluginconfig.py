"""Configurations of the device plugin: what they say, and every fault of them at once."""

import pytest

from policies.faults import UnsoundError
from reconciler.agent.fixed.devices import Selection
from reconciler.agent.fixed.pluginconfig import PluginConfig, Shared, read_plugin_config


def faults(text):
    with pytest.raises(UnsoundError) as caught:
        read_plugin_config(text)
    return list(caught.value.faults)


def shared(sharing):
    return read_plugin_config(f"version: v1\nsharing: {sharing}").shared


def test_a_file_as_nos_writes_it_for_nebulys_plugin_is_read_whole():
    """The row "MPS by nebuly's device-plugin fork": with rename, memoryGB and devices, which NVIDIA's plugin ignores."""
    read = read_plugin_config("""
        version: v1
        flags:
          migStrategy: none
          failOnInitError: true
          nvidiaDriverRoot: /
          gdsEnabled: null
          plugin: {passDeviceSpecs: false, deviceListStrategy: [envvar], deviceIDStrategy: uuid}
        resources: {gpus: [{pattern: "*", name: nvidia.com/gpu}], migs: [{pattern: 1g.5gb+me, name: mig-1g.5gb.me}]}
        sharing:
          timeSlicing: {}
          mps:
            failRequestsGreaterThanOne: true
            resources:
            - {name: nvidia.com/gpu, rename: nvidia.com/gpu-4gb, memoryGB: 4, replicas: 2, devices: ["0"]}
    """)
    assert read == PluginConfig(
        strategy="none",
        shared=(
            Shared(
                place="sharing.mps.resources[0]",
                mps=True,
                name="nvidia.com/gpu",
                resource="nvidia.com/gpu-4gb",
                devices=Selection(named=("0",)),
                replicas=2,
                memory_gb=4,
                alone=True,
            ),
        ),
    )


def test_a_file_that_says_nothing_changes_nothing():
    assert read_plugin_config("version: v1") == PluginConfig()


@pytest.mark.parametrize(
    ("sharing", "resource", "alone"),
    [
        pytest.param("{timeSlicing: {resources: [{name: gpu, replicas: 4}]}}", "nvidia.com/gpu", False, id="time-slicing"),
        pytest.param(
            "{timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
            "nvidia.com/gpu.shared", False, id="renamed-by-default",
        ),
        pytest.param(
            "{timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, rename: gold, replicas: 4}]}}",
            "nvidia.com/gold", False, id="renamed",
        ),
        pytest.param(
            "{timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: mig-1g.5gb, replicas: 4}]}}",
            "nvidia.com/mig-1g.5gb", True, id="of-mig-devices",
        ),
        pytest.param("{mps: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}", "nvidia.com/gpu", True, id="mps"),
    ],
)  # fmt: skip
def test_a_resource_is_called_as_its_entry_says(sharing, resource, alone):
    (entry,) = shared(sharing)
    assert (entry.resource, entry.alone) == (resource, alone)


@pytest.mark.parametrize(
    ("devices", "selection"),
    [
        pytest.param("all", Selection(), id="all"),
        pytest.param("2", Selection(first=2), id="the-first-two"),
        pytest.param("[0, '1', GPU-7c1f]", Selection(named=("0", "1", "GPU-7c1f")), id="by-index-and-uuid"),
    ],
)
def test_devices_are_all_or_so_many_or_named(devices, selection):
    (entry,) = shared(f"{{mps: {{resources: [{{name: gpu, replicas: 2, devices: {devices}}}]}}}}")
    assert entry.devices == selection


def test_every_misfit_of_the_shape_is_told_at_once():
    assert faults("""
        version: v2
        flags: {migStrategy: both, colour: red, plugin: {colour: blue}}
        sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: many, memory: 4}]}, mps: 3}
    """) == [
        "version: v2: must be one of v1",
        "flags.migStrategy: both: must be one of mixed, none, single",
        "flags.plugin.colour: blue: there is no such field: there are passDeviceSpecs, deviceListStrategy, deviceIDStrategy, "
        "cdiAnnotationPrefix, nvidiaCTKPath, nvidiaCDIHookPath, containerDriverRoot",
        "flags.colour: red: there is no such field: there are migStrategy, failOnInitError, nvidiaDriverRoot, nvidiaDevRoot, "
        "gdsEnabled, mofedEnabled, gdrcopyEnabled, useNodeFeatureAPI, deviceDiscoveryStrategy, plugin, gfd, mps",
        "sharing.timeSlicing.resources[0].replicas: many: must be a whole number, not text",
        "sharing.timeSlicing.resources[0].memory: 4: there is no such field: there are name, rename, devices, replicas, memoryGB",
        "sharing.mps: 3: must be an object, not a number",
    ]


def test_what_nvidias_plugin_would_do_and_we_do_not_is_refused_with_the_way_out():
    assert faults("""
        version: v1
        flags:
          gdsEnabled: true
          plugin: {passDeviceSpecs: true, deviceIDStrategy: index, deviceListStrategy: volume-mounts}
          mps: {root: /mps}
        resources: {gpus: [{pattern: "*", name: gold}]}
        sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: nvidia.com/gpu, replicas: 2}]}}
    """) == [
        "flags.gdsEnabled: true: containers get no GPUDirect Storage from us: leave it out",
        "flags.plugin.passDeviceSpecs: true: containers get devices from NVIDIA's runtime: leave it out",
        "flags.plugin.deviceListStrategy: volume-mounts: the agent's own option --device-ids says how devices are named: "
        "write envvar or cdi-cri",
        "flags.plugin.deviceIDStrategy: index: an index means another board after a reboot: write uuid",
        "flags.mps.root: /mps: the agent's own option says where its daemons are: leave it out",
        "resources.gpus[0].name: gold: this is announced as nvidia.com/gpu: leave it out, or rename what is shared under sharing",
        "sharing.mps.failRequestsGreaterThanOne: false: a client talks to one MPS daemon, so a container gets one device: "
        "leave it out",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("section", "entry", "why"),
    [
        pytest.param("timeSlicing", "name: gpu, replicas: 1", "replicas: 1: must be from 2 to 1000", id="one-turn"),
        pytest.param(
            "timeSlicing", "name: gpu, replicas: 2, memoryGB: 4",
            "memoryGB: 4: time-slicing limits no memory: use sharing.mps", id="memory-of-a-turn",
        ),
        pytest.param(
            "timeSlicing", "name: gpu, replicas: 2, rename: gpu-10gb",
            "rename: gpu-10gb: is the name of a slice with memory of its own, which a turn is not", id="a-turn-called-a-slice",
        ),
        pytest.param(
            "timeSlicing", "name: nvidia.com/tpu, replicas: 2",
            "name: nvidia.com/tpu: write nvidia.com/gpu or nvidia.com/mig-<profile>", id="no-gpu",
        ),
        pytest.param(
            "timeSlicing", "name: nvidia.com/mig-1g.5gb, replicas: 2, devices: [0]",
            "devices: [0]: MIG devices are divided by their resource, all of them: write all", id="some-mig-devices",
        ),
        pytest.param(
            "timeSlicing", "name: gpu, replicas: 2, rename: amd.com/gpu",
            "rename: amd.com/gpu: must begin with nvidia.com/", id="anothers-name",
        ),
        *(
            pytest.param(
                "timeSlicing", f"name: gpu, replicas: 2, rename: {name}",
                f"rename: {name}: no name of a resource: after nvidia.com/ at most 63 letters, digits, and -_. between them",
                id=f"no-name-{kind}",
            )
            for kind, name in [
                ("blank", "nvidia.com/a b"), ("slash", "nvidia.com/a/b"), ("empty", "nvidia.com/"), ("long", f"nvidia.com/{64 * 'x'}"),
            ]
        ),
        pytest.param(
            "mps", "name: nvidia.com/mig-1g.5gb, replicas: 2",
            "name: nvidia.com/mig-1g.5gb: MPS shares whole GPUs: write nvidia.com/gpu", id="mps-on-mig",
        ),
        pytest.param(
            "mps", "name: gpu, replicas: 2, memoryGB: 4, rename: gpu-10gb",
            "rename: gpu-10gb: says 10 GB: write memoryGB: 10", id="a-name-that-lies",
        ),
        pytest.param(
            "mps", "name: gpu, replicas: 2, memoryGB: 4, rename: mig-1g.5gb",
            "rename: mig-1g.5gb: an MPS slice is called nvidia.com/gpu-<N>gb", id="mps-called-mig",
        ),
        pytest.param("mps", "name: gpu, replicas: 0", "replicas: 0: must be from 1 to 1000", id="none"),
        pytest.param("mps", "name: gpu, replicas: 1, memoryGB: 0", "memoryGB: 0: must be at least 1", id="no-memory"),
        pytest.param(
            "mps", "name: gpu, replicas: 1, devices: none",
            "devices: none: write all, a number of GPUs, or a list of indices and UUIDs", id="no-devices",
        ),
        pytest.param(
            "mps", "name: gpu, replicas: 1, devices: [0, 0]", "devices: 0: named twice", id="named-twice",
        ),
        pytest.param(
            "mps", "name: gpu, replicas: 1, devices: ['0:1']",
            "devices[0]: 0:1: a MIG device has no lasting number or UUID: divide all of its resource, "
            "nvidia.com/mig-<profile>", id="a-mig-device-by-number",
        ),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_honoured_is_refused(section, entry, why):
    text = f"version: v1\nsharing: {{{section}: {{resources: [{{{entry}}}]}}}}"
    assert faults(text) == [f"sharing.{section}.resources[0].{why}"]


def test_a_file_that_is_no_yaml_says_where():
    (told,) = faults("version: v1\nsharing: [")
    assert told.startswith("no YAML: while parsing a flow node")
    assert "line 2" in told
