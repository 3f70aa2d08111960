"""The pins of a node's programs."""

import re

import pytest

from console.sandbox.binaries import API_SERVER, KUBELET
from tests.node.programs import NODE_PROGRAMS


def test_versions_are_those_of_the_go_mod_files_and_the_kubelets_is_its_clusters():
    assert {program.name: program.version for program in NODE_PROGRAMS} == {
        "kubelet": "v1.36.3",
        "containerd": "v2.4.2",
        "containerd-shim-runc-v2": "v2.4.2",
        "ctr": "v2.4.2",
        "runc": "v1.5.3",
    }
    assert KUBELET.version == API_SERVER.version


@pytest.mark.parametrize("program", NODE_PROGRAMS, ids=lambda program: program.name)
def test_every_program_is_a_tool_of_its_module_so_that_tidying_keeps_it(program):
    assert re.search(
        rf"^(tool )?\s*{re.escape(program.package)}$", (program.directory / "go.mod").read_text(), re.MULTILINE
    )
