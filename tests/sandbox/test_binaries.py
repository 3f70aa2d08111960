"""The pins: what is built, from which versions, and under which key it is kept."""

import re

import msgspec

from console.sandbox.binaries import API_SERVER, BINARIES, ETCD, KUBELET, KWOK, required_go


def test_versions_are_those_of_the_go_mod_files() -> None:
    assert {binary.name: binary.version for binary in BINARIES} == {
        "etcd": "v3.7.3",
        "kube-apiserver": "v1.36.3",
        "kube-scheduler": "v1.36.3",
        "kube-controller-manager": "v1.36.3",
        "kwok": "v0.8.0",
    }


def test_every_staging_module_has_the_version_of_kubernetes_itself() -> None:
    """A dependent of k8s.io/kubernetes does not see its replacements by directories: 33 in v1.36.3."""
    lines = (API_SERVER.directory / "go.mod").read_text().splitlines()
    replaced = [found for line in lines if (found := re.fullmatch(r"\t(\S+) => (\S+) (\S+)", line))]
    assert len(replaced) == 33
    assert all(module[1] == module[2] and module[3] == "v0.36.3" for module in replaced)


def test_every_binary_is_a_tool_of_its_module_so_that_tidying_keeps_it() -> None:
    for binary in (*BINARIES, KUBELET):
        assert re.search(
            rf"^(tool )?\s*{re.escape(binary.package)}$", (binary.directory / "go.mod").read_text(), re.MULTILINE
        )


def test_kubernetes_is_stamped_with_its_version_and_others_are_not() -> None:
    assert API_SERVER.linker_flags == (
        "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3"
        " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
    )
    assert ETCD.linker_flags == KWOK.linker_flags == "-s -w"


def test_go_must_be_as_new_as_the_most_demanding_module() -> None:
    assert required_go(BINARIES) == (1, 26, 0)


def test_another_pin_makes_another_key(tmp_path) -> None:
    (tmp_path / "etcd").mkdir()
    for name in ("go.mod", "go.sum"):
        (tmp_path / "etcd" / name).write_text((ETCD.directory / name).read_text())
    copied = msgspec.structs.replace(ETCD, modules=tmp_path)
    assert copied.key == ETCD.key
    (tmp_path / "etcd" / "go.sum").write_text("other")
    assert copied.key != ETCD.key


def test_programs_of_one_module_have_keys_of_their_own() -> None:
    assert len({binary.key for binary in (*BINARIES, KUBELET)}) == len(BINARIES) + 1
    assert msgspec.structs.replace(ETCD, package="go.etcd.io/etcd/etcdctl/v3").key != ETCD.key
