"""Shares in the templates of workloads (W08): moved into annotations, and only that."""

import json

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import names
from policies.templates import KINDS, admit_template
from tests.builders import container, raw_pod

BY_NAME = {kind.name: kind for kind in KINDS}
DEPLOYMENT = BY_NAME["Deployment"]
FRACTION, CONTAINER = names.FRACTION, names.CONTAINER


def template(*, annotations=None, **fields):
    """Return a pod template; see tests.builders.raw_pod."""
    pod = raw_pod(annotations=annotations, **fields)
    return {"metadata": {"annotations": annotations} if annotations is not None else {}, "spec": pod["spec"]}


def workload(pods, kind=DEPLOYMENT):
    inner = pods
    for step in reversed(kind.template):
        inner = {step: inner}
    return {"apiVersion": "x/v1", "kind": kind.name, "metadata": {"name": "w"}, **inner}


def below(raw, kind=DEPLOYMENT):
    for step in kind.template:
        raw = raw[step]
    return raw


def admitted(pods, old=None, kind=DEPLOYMENT):
    raw, before = workload(pods, kind), workload(old, kind) if old else None
    read = [msgspec.convert(each, kind.model) if each else None for each in (raw, before)]
    return admit_template(kind, *read)


def rewritten(pods, old=None, kind=DEPLOYMENT):
    """Return the template after the patch, which must leave everything else as it was and find nothing more to do."""
    found = admitted(pods, old, kind)
    assert found.faults == ()
    raw = workload(pods, kind)
    after = jsonpatch.apply_patch(raw, msgspec.to_builtins(found.patch))
    assert admitted(below(after, kind), old, kind).patch == ()
    return below(after, kind)


def resources(pods, name="main"):
    (found,) = (
        each for each in [*pods["spec"]["containers"], *pods["spec"].get("initContainers", [])] if each["name"] == name
    )
    return found.get("resources")


def half(name="main", amount="500m", **fields):
    return container(name, limits={names.GPU: amount}, **fields)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_share_becomes_annotations_of_the_template(kind):
    found = admitted(template(limits={names.GPU: "500m"}), kind=kind)
    where = "/" + "/".join(kind.template)
    assert [msgspec.to_builtins(operation) for operation in found.patch] == [
        {"op": "remove", "path": f"{where}/spec/containers/0/resources/limits/nvidia.com~1gpu"},
        {"op": "add", "path": f"{where}/metadata/annotations", "value": {FRACTION: "0.5", CONTAINER: "main"}},
    ]
    assert found.warnings == (
        "nvidia.com/gpu 0.5 of main -> nos.nebuly.com/gpu-fraction 0.5 in the template: "
        "each pod gets its slice when it is created",
    )


@pytest.mark.parametrize(
    ("amount", "written"),
    [
        pytest.param("500m", "0.5", id="as the API server writes it"),
        pytest.param("0.5", "0.5", id="decimal"),
        pytest.param(0.5, "0.5", id="number"),
        pytest.param("290m", "0.29", id="two decimals"),
        pytest.param("143m", "0.143", id="three decimals"),
        pytest.param("300m", "0.3", id="trailing zeros"),
        pytest.param("142857143n", "0.142857143", id="nine decimals"),
    ],
)
def test_a_share_is_written_as_a_decimal_that_means_the_same(amount, written):
    assert rewritten(template(limits={names.GPU: amount}))["metadata"]["annotations"][FRACTION] == written


@pytest.mark.parametrize(
    ("pods", "annotations"),
    [
        pytest.param(template(requests={names.GPU: "500m"}), {FRACTION: "0.5", CONTAINER: "main"}, id="requests alone"),
        pytest.param(
            template(limits={names.GPU: "500m", "cpu": "1"}, requests={names.GPU: "500m"}),
            {FRACTION: "0.5", CONTAINER: "main"},
            id="both",
        ),
        pytest.param(
            template(init=[half("load", restartPolicy="Always")]), {FRACTION: "0.5", CONTAINER: "load"}, id="sidecar"
        ),
        pytest.param(
            template(containers=[container("a"), half("b")]), {FRACTION: "0.5", CONTAINER: "b"}, id="second container"
        ),
        pytest.param(
            template(containers=[half("a"), half("b", "250m")], init=[half("c", "100m")]),
            {f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.25", f"{FRACTION}.c": "0.1"},
            id="several",
        ),
        pytest.param(
            template(containers=[container("a"), half("b")], annotations={names.MEMORY: "10Gi", "a/b": "c"}),
            {names.MEMORY: "10Gi", "a/b": "c", f"{FRACTION}.b": "0.5"},
            id="beside the annotation of another container",
        ),
        pytest.param(
            template(containers=[half("a"), container("b")], annotations={CONTAINER: "b"}),
            {CONTAINER: "b", f"{FRACTION}.a": "0.5"},
            id="beside gpu-container for another one",
        ),
        pytest.param(
            template(containers=[half("a"), container("b", limits={"nvidia.com/mig-1g.5gb": "1"})]),
            {FRACTION: "0.5", CONTAINER: "a"},
            id="beside a slice",
        ),
        pytest.param(
            template(containers=[half("a"), container("b", limits={names.GPU: "1"})]),
            {FRACTION: "0.5", CONTAINER: "a"},
            id="beside a whole GPU",
        ),
        pytest.param(
            template(containers=[half("n" * 63)]), {FRACTION: "0.5", CONTAINER: "n" * 63}, id="single, long name"
        ),
        pytest.param(
            template(containers=[half("n" * 50), half("m")]),
            {f"{FRACTION}.{'n' * 50}": "0.5", f"{FRACTION}.m": "0.5"},
            id="50 characters fit",
        ),
    ],
)
def test_where_the_share_of_each_container_goes(pods, annotations):
    after = rewritten(pods)
    assert after["metadata"]["annotations"] == annotations
    spec = json.dumps(after["spec"])
    assert "00m" not in spec
    assert "50m" not in spec


def test_everything_else_stays_as_it_is():
    pods = template(
        containers=[half("a", env={"A": "1"}, futureField={"x": [1]}), container("b", limits={names.GPU: 2, "cpu": 1})],
        annotations={"a/b~c": "d"},
        futureSpec={"y": 1},
    )
    after = rewritten(pods)
    want = json.loads(json.dumps(pods))
    want["spec"]["containers"][0]["resources"]["limits"] = {}
    want["metadata"]["annotations"] |= {FRACTION: "0.5", CONTAINER: "a"}
    assert after == want


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="empty"),
        pytest.param({"annotations": None}, id="null annotations"),
        pytest.param({"creationTimestamp": None, "labels": {"a": "b"}}, id="labels"),
        pytest.param(None, id="null"),
    ],
)
def test_metadata_that_are_not_there_are_made(metadata):
    """W11."""
    pods = template(limits={names.GPU: "500m"}) | {"metadata": metadata}
    after = rewritten(pods)["metadata"]
    assert after == {**(metadata or {}), "annotations": {FRACTION: "0.5", CONTAINER: "main"}}


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param(template(), id="nothing"),
        pytest.param(template(limits={names.GPU: 1}), id="whole"),
        pytest.param(template(limits={names.GPU: 0}), id="zero"),
        pytest.param(template(limits={names.GPU: "2000m"}), id="whole, in thousandths"),
        pytest.param(template(limits={"nvidia.com/mig-1g.5gb": 1}), id="slice"),
        pytest.param(template(annotations={FRACTION: "1/7"}), id="annotation"),
        pytest.param(template(annotations={FRACTION: "2", "nos.nebuly.com/gpu-cuont": "1"}), id="W20: faults of pods"),
        pytest.param({"metadata": {}, "spec": None}, id="null specification"),
        pytest.param(None, id="null template"),
    ],
)
def test_a_template_without_a_share_is_not_judged(pods):
    assert admitted(pods) == admitted(template())
    assert admitted(pods).patch == ()


def test_every_fault_is_told_at_once_with_its_path():
    pods = template(
        containers=[
            half("a", "1500m"),
            half("b", "-500m"),
            container("c", limits={names.GPU: "500m"}, requests={names.GPU: "250m"}),
            half("d"),
            half("n" * 51),
        ],
        init=[half("e", "1n")],
        annotations={f"{FRACTION}.d": "0.5", f"{FRACTION}.x": "0.5", names.MODE: "mgi"},
    )
    found = admitted(pods, kind=BY_NAME["CronJob"])
    assert found.patch == ()
    assert sorted(fault.removeprefix("spec.jobTemplate.spec.template.").split(": ")[0] for fault in found.faults) == [
        "metadata.annotations[nos.nebuly.com/gpu-fraction.d]",
        "metadata.annotations[nos.nebuly.com/gpu-fraction.x]",
        "metadata.annotations[nos.nebuly.com/gpu-mode]",
        "spec.containers[0].resources.limits[nvidia.com/gpu]",
        "spec.containers[1].resources.limits[nvidia.com/gpu]",
        "spec.containers[2].resources.limits[nvidia.com/gpu]",
        "spec.containers[4].name",
    ]


def test_an_amount_that_is_none_is_refused():
    (found,) = admitted(template(limits={names.GPU: "half"})).faults
    assert found.startswith(
        "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: 'half' is not a quantity"
    )


def test_a_name_that_fits_no_key_is_refused_with_both_lengths():
    name = "n" * 51
    found = admitted(template(containers=[half(name), half("b")]))
    assert found.faults == (
        f"spec.template.spec.containers[0].name: {name}: a container that asks for a share beside others becomes part of "
        "the annotation nos.nebuly.com/gpu-fraction.<container>, so its name has at most 50 characters, not 51: shorten it",
    )


def test_a_container_that_does_not_exist_is_refused():
    found = admitted(template(limits={names.GPU: "500m"}, annotations={CONTAINER: "mian"}))
    assert found.faults == (
        "spec.template.metadata.annotations[nos.nebuly.com/gpu-container]: mian: "
        "no container has that name: the pod has main",
    )


def test_an_annotation_beside_a_share_is_refused_even_if_both_say_the_same():
    """Design 3.1; on creation nobody but the user has written either."""
    found = admitted(template(limits={names.GPU: "500m"}, annotations={FRACTION: "0.5"}))
    assert found.faults == (
        "spec.template.metadata.annotations[nos.nebuly.com/gpu-fraction]: 0.5: "
        "container main asks for nvidia.com/gpu 500m too: keep one of them",
    )


STORED = template(annotations={FRACTION: "0.5", CONTAINER: "main"})
SEVERAL = template(
    containers=[container("a"), container("b")], annotations={f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.25"}
)


@pytest.mark.parametrize(
    ("old", "pods", "annotations"),
    [
        pytest.param(
            STORED,
            template(limits={names.GPU: "500m"}, annotations={FRACTION: "0.5", CONTAINER: "main"}),
            {FRACTION: "0.5", CONTAINER: "main"},
            id="the same again: W13, W16",
        ),
        pytest.param(
            STORED,
            template(limits={names.GPU: "250m"}, annotations={FRACTION: "0.5", CONTAINER: "main"}),
            {FRACTION: "0.25", CONTAINER: "main"},
            id="another share",
        ),
        pytest.param(STORED, template(limits={names.GPU: "500m"}), {FRACTION: "0.5", CONTAINER: "main"}, id="replaced"),
        pytest.param(
            STORED,
            template(limits={names.GPU: "1"}, annotations={FRACTION: "0.5", CONTAINER: "main"}),
            {},
            id="a whole GPU instead",
        ),
        pytest.param(
            STORED,
            template(limits={"nvidia.com/mig-1g.5gb": "1"}, annotations={FRACTION: "0.5", CONTAINER: "main"}),
            {},
            id="a slice instead",
        ),
        pytest.param(
            STORED,
            template(annotations={FRACTION: "0.5", CONTAINER: "main", names.MEMORY: "10Gi"}),
            {CONTAINER: "main", names.MEMORY: "10Gi"},
            id="memory instead",
        ),
        pytest.param(
            SEVERAL,
            template(
                containers=[half("a"), half("b", "250m")],
                annotations={f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.25"},
            ),
            {f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.25"},
            id="several again",
        ),
        pytest.param(
            SEVERAL,
            template(
                containers=[half("a", "100m"), container("b")],
                annotations={f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.25"},
            ),
            {f"{FRACTION}.a": "0.1", f"{FRACTION}.b": "0.25"},
            id="one of several",
        ),
        pytest.param(
            STORED,
            template(containers=[half("main"), half("more")], annotations={FRACTION: "0.5", CONTAINER: "main"}),
            {f"{FRACTION}.main": "0.5", f"{FRACTION}.more": "0.5"},
            id="one more",
        ),
        pytest.param(
            STORED,
            template(containers=[half("renamed")], annotations={FRACTION: "0.5", CONTAINER: "main"}),
            {FRACTION: "0.5", CONTAINER: "renamed"},
            id="its container has another name",
        ),
        pytest.param(
            STORED,
            template(
                containers=[container("renamed", limits={names.GPU: "1"})],
                annotations={FRACTION: "0.5", CONTAINER: "main"},
            ),
            {},
            id="another name and a whole GPU",
        ),
        pytest.param(
            SEVERAL,
            template(containers=[half("a")], annotations={f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.25"}),
            {FRACTION: "0.5", CONTAINER: "a"},
            id="one of several is gone",
        ),
        pytest.param(
            STORED,
            template(containers=[half("a"), half("b")], annotations={FRACTION: "0.5", CONTAINER: "main"}),
            {f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.5"},
            id="two with other names",
        ),
        pytest.param(
            template(limits={names.GPU: "1"}),
            template(limits={names.GPU: "500m"}),
            {FRACTION: "0.5", CONTAINER: "main"},
            id="a share instead of a whole GPU",
        ),
    ],
)
def test_what_an_update_brings_takes_the_place_of_the_share_that_was_there(old, pods, annotations):
    after = rewritten(pods, old)
    assert after["metadata"].get("annotations", {}) == annotations


def test_a_share_that_goes_with_its_container_is_told():
    """It may have been written as an annotation, and its author forget that the container bears another name now."""
    gone = template(containers=[half("a")], annotations={f"{FRACTION}.a": "0.5", f"{FRACTION}.b": "0.25"})
    assert admitted(gone, SEVERAL).warnings[-1] == (
        "nos.nebuly.com/gpu-fraction.b 0.25 is taken out of the template: container b is gone"
    )


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({FRACTION: "0.5", CONTAINER: "gone"}, id="chosen anew"),
        pytest.param({FRACTION: "0.25", CONTAINER: "main"}, id="asked anew"),
        pytest.param({FRACTION: "0.5", CONTAINER: "main", f"{FRACTION}.gone": "0.5"}, id="for another one"),
    ],
)
def test_what_an_update_asks_for_a_container_that_is_gone_is_a_fault(annotations):
    (found, *_) = admitted(template(containers=[half("renamed")], annotations=annotations), STORED).faults
    assert "no container has that name: the pod has renamed" in found


def test_the_same_manifest_again_changes_nothing_and_says_nothing():
    again = template(limits={names.GPU: "500m"}, annotations={FRACTION: "0.5", CONTAINER: "main"})
    assert admitted(again, STORED).warnings == ()
    assert resources(rewritten(again, STORED)) == {"limits": {}}


def test_a_change_of_something_else_leaves_the_annotations_alone():
    """`set image`, `scale`, `rollout restart`: the stored template with another field."""
    changed = template(annotations={FRACTION: "0.5", CONTAINER: "main", "kubectl.kubernetes.io/restartedAt": "now"})
    assert admitted(changed, STORED).patch == ()


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({FRACTION: "0.25", CONTAINER: "main"}, id="annotation and resource both changed"),
        pytest.param({FRACTION: "0.5", CONTAINER: "main", names.COUNT: "2"}, id="a count"),
    ],
)
def test_an_update_that_contradicts_itself_is_refused(annotations):
    found = admitted(template(limits={names.GPU: "100m"}, annotations=annotations), STORED)
    assert "keep one of them" in found.faults[0]


AMOUNTS = st.sampled_from([None, "500m", "250m", "1", "0", "142857143n"])


@st.composite
def templates(draw, named=("a", "b", "n" * 50)):
    """Templates of containers that ask in every way that is not faulty, some of their maps absent, null or empty."""
    containers = []
    for name in named:
        amount = draw(AMOUNTS)
        asked = {} if amount is None else {names.GPU: amount}
        kinds = draw(st.sampled_from([("limits",), ("requests",), ("limits", "requests")]))
        rest = draw(st.sampled_from([{}, {"cpu": "1"}]))
        resources = {kind: {**asked, **rest} for kind in kinds} if asked or rest else draw(st.sampled_from([{}, None]))
        containers.append({"name": name, "image": "x", "resources": resources, "other": {"kept": [1]}})
    split = draw(st.integers(1, len(containers)))
    spec = {"containers": containers[:split], "initContainers": containers[split:] or None}
    metadata = draw(st.sampled_from([None, {}, {"annotations": None}, {"annotations": {"a/b~c": "d"}, "labels": {}}]))
    return {"metadata": metadata, "spec": spec}


def without_gpus(pods):
    """Return a template without what may change: shares, our annotations, and maps that are empty."""
    bare = json.loads(json.dumps(pods))
    for each in (*bare["spec"]["containers"], *(bare["spec"].get("initContainers") or [])):
        for kind in ("limits", "requests"):
            amounts = (each["resources"] or {}).get(kind, {})
            if amounts.get(names.GPU, "").endswith(("m", "n")):
                del amounts[names.GPU]
    metadata = bare["metadata"] or {}
    notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if not k.startswith(names.PREFIX)}
    return {**bare, "metadata": {**metadata, "annotations": notes}}


@given(templates(), st.sampled_from(KINDS))
def test_shares_go_and_all_else_stays_whatever_the_template(pods, kind):
    """W10, W11: and applying the same again changes nothing at all."""
    stored = rewritten(pods, kind=kind)
    assert without_gpus(stored) == without_gpus(pods)
    assert not [text for text in ("500m", "250m", "142857143n") if f'"{text}"' in json.dumps(stored["spec"])]
    merged = {**pods, "metadata": stored["metadata"]}
    assert rewritten(merged, stored, kind) == stored
