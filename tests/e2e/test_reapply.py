"""Applied again and changed by every verb of kubectl: what asks for a share of a GPU behaves like what asks for none.

Each kind is taken through the same commands twice, with a share and without (its twin), on a real API server: kubectl
must end in the same way, and what is stored must change in the same way. `pytest -s tests/e2e/test_reapply.py` prints
the transcript.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from console.sandbox.apiclient import ApiClient
from console.sandbox.kubectl import kubectl_command
from policies import names
from tests.sandbox.waiting import create_namespace, eventually

pytestmark = pytest.mark.sandbox

NAMESPACE = "reapply"
SHARE = {"limits": {names.GPU: "0.25"}}
ASKED = {names.FRACTION: "0.25", names.CONTAINER: "main"}
GIVEN = {"nvidia.com/mig-1g.10gb": "1"}
MOST_LINES = 12
TRIES = 5  # kubectl replace reads and then writes: a controller may write a status in between
PATHS = {
    "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "Job": f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
    "CronJob": f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs",
}
# Our own accounts pass the webhook unchanged: what they make is as if it had not existed then.
BEFORE_US = ("--as=system:serviceaccount:apportion-system:someone", "--as-group=system:masters")


class Shell:
    """kubectl in one namespace. What it is told and what it answers is printed."""

    def __init__(self, cluster, api: ApiClient, directory: Path) -> None:
        self._command = [*kubectl_command(cluster.directory), f"--namespace={NAMESPACE}"]
        self._api = api
        self.directory = directory

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Return status and all output of a command, which runs where the manifests lie."""
        done = subprocess.run(
            [*self._command, *arguments], cwd=self.directory, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        lines = [f"$ kubectl {' '.join(arguments)}", *done.stdout.splitlines()]
        cut = ["..."] if len(lines) > MOST_LINES else []  # the API server shows whole specifications as a diff
        print(*lines[:MOST_LINES], *cut, *([f"[{done.returncode}]"] if done.returncode else []), sep="\n")
        return done.returncode, done.stdout

    def stored(self, kind: str, name: str) -> dict:
        """Return an object as it is stored; this is no part of the transcript."""
        return json.loads(self._api.get(f"{PATHS[kind]}/{name}"))

    def settled(self, kind: str, name: str) -> dict:
        """Return an object as it is stored once its controller has seen it, which may annotate it: a new generation."""
        eventually(lambda: observed(self.stored(kind, name)), f"{kind} {name} is seen by its controller")
        return self.stored(kind, name)

    def pods(self, **labels: str) -> list[dict]:
        query = ",".join(f"{key}%3D{value}" for key, value in labels.items())
        return json.loads(self._api.get(f"{PATHS['Pod']}?labelSelector={query}"))["items"]

    def write(self, file: str, content: dict) -> str:
        """Write a manifest and return how it is named."""
        path = self.directory / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return file


@pytest.fixture(scope="module")
def kubectl(cluster, tmp_path_factory) -> Iterator[Shell]:
    with cluster.client() as api:
        shell = Shell(cluster, api, tmp_path_factory.mktemp("manifests"))
        create_namespace(cluster, NAMESPACE)
        yield shell


def pod_spec(resources, **fields):
    main = {"name": "main", "image": "registry.example/image:1", **({"resources": resources} if resources else {})}
    return {"containers": [main], **fields}


def manifest(kind: str, name: str, resources=None) -> dict:
    """Return what a user writes."""
    labels, never = {"app": name}, {"restartPolicy": "Never"}
    version, spec = {
        "Pod": ("v1", pod_spec(resources)),
        "Deployment": ("apps/v1", {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod_spec(resources)}}),
        "Job": ("batch/v1", {"template": {"spec": pod_spec(resources, **never)}}),
        "CronJob": ("batch/v1", {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": {"spec": pod_spec(resources, **never)}}}}),
    }[kind]  # fmt: skip
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def template_of(stored: dict) -> dict:
    """Return metadata and spec of the pod, or of the pods, that an object means."""
    if stored["kind"] == "Pod":
        return stored
    spec = stored["spec"]
    return spec["template"] if "template" in spec else spec["jobTemplate"]["spec"]["template"]


def observed(stored: dict) -> bool:
    """Return whether the controller of an object has seen its last generation, where it says so."""
    return (
        stored["kind"] != "Deployment" or stored["status"].get("observedGeneration") == stored["metadata"]["generation"]
    )


def visible(stored: dict) -> tuple:
    """Return what the commands change."""
    template = template_of(stored)
    notes = [key for key in template["metadata"].get("annotations") or {} if not key.startswith(names.PREFIX)]
    return (
        template["spec"]["containers"][0]["image"],
        stored["spec"].get("replicas"),
        sorted(notes),
        sorted((stored["metadata"].get("labels") or {}).keys() - {"app"}),
    )


STEPS = [
    ("apply", "-f", "{file}"),
    ("apply", "-f", "{file}"),
    ("apply", "-f", "{file}", "--dry-run=server"),
    ("diff", "-f", "{file}"),
    ("label", "{kind}", "{name}", "a=b"),
    ("annotate", "{kind}", "{name}", "c=d"),
    ("apply", "-f", "{file}"),
    ("scale", "{kind}", "{name}", "--replicas=2"),
    ("set", "image", "{kind}", "{name}", "main=registry.example/image:2"),
    ("rollout", "restart", "{kind}", "{name}"),
    ("apply", "-f", "{file}"),
    ("apply", "-k", "{overlay}"),
    ("apply", "-k", "{overlay}"),
    ("diff", "-k", "{overlay}"),
    ("replace", "-f", "{file}"),
    ("replace", "-f", "{stored}"),
]
SERVER_SIDE = [
    ("apply", "--server-side", "-f", "{file}"),
    ("apply", "--server-side", "-f", "{file}"),
    ("apply", "--server-side", "-f", "{file}", "--dry-run=server"),
    ("diff", "--server-side", "-f", "{file}"),
    ("set", "image", "{kind}", "{name}", "main=registry.example/image:2"),
    ("apply", "--server-side", "--force-conflicts", "-f", "{file}"),
    ("apply", "--server-side", "-k", "{overlay}"),
    ("apply", "--server-side", "-k", "{overlay}"),
]


def take_through(kubectl, kind, name, resources, steps):
    """Return, for each step, status, the object as it is stored then, and whether its generation has grown."""
    file = kubectl.write(f"{kind.lower()}-{name}.yaml", manifest(kind, name, resources))
    overlay = f"overlay-{kind.lower()}-{name}"
    kubectl.write(f"{overlay}/base.yaml", manifest(kind, name, resources))
    kubectl.write(f"{overlay}/kustomization.yaml", {"resources": ["base.yaml"], "labels": [{"pairs": {"team": "a"}}]})
    words = {"file": file, "overlay": overlay, "stored": "stored.yaml", "kind": kind.lower(), "name": name}
    seen, generation = [], 1
    for step in steps:
        if "{stored}" in step:
            stored = kubectl.stored(kind, name)
            del stored["metadata"]["resourceVersion"]
            kubectl.write("stored.yaml", stored)
        for _ in range(TRIES):
            status, said = kubectl(*(argument.format(**words) for argument in step))
            if "(Conflict)" not in said:
                break
        if kind == "Pod" and not seen:  # the gate that we remove counts as a change, and it is ours
            kubectl("wait", "pod", name, "--for=condition=Ready", "--timeout=20s")
            generation = kubectl.stored(kind, name)["metadata"]["generation"]
        stored = kubectl.settled(kind, name)
        seen.append((status, stored, stored["metadata"]["generation"] > generation))
        generation = stored["metadata"]["generation"]
    return seen


def asks_for_its_share(stored: dict) -> bool:
    """Return whether an object still asks for, or has, what was applied first."""
    template = template_of(stored)
    resources, notes = template["spec"]["containers"][0].get("resources", {}), template["metadata"]["annotations"]
    if stored["kind"] == "Pod":
        return resources == {"limits": GIVEN, "requests": GIVEN} and names.RECORD in notes
    return resources == {} and notes.items() >= ASKED.items()


KINDS = ["Pod", "Deployment", "Job", "CronJob"]
ENDS_WELL = ("apply", "diff", "label", "annotate")
CHANGES_NOTHING = ("--dry-run=server", "diff")


def test_the_pods_of_a_template_get_their_slices(kubectl):
    """W08: a CronJob's Job, since its template is nested deepest."""
    kubectl("apply", "-f", kubectl.write("nightly.yaml", manifest("CronJob", "nightly", SHARE)))
    kubectl("create", "job", "now", "--from=cronjob/nightly")
    assert kubectl("wait", "job", "now", "--for=jsonpath={.status.ready}=1", "--timeout=20s")[0] == 0
    (pod,) = kubectl.pods(**{"job-name": "now"})
    assert pod["spec"]["containers"][0]["resources"] == {"limits": GIVEN, "requests": GIVEN}
    kubectl("delete", "cronjob/nightly", "job/now", "--wait=false")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [pytest.param(STEPS, id="client-side"), pytest.param(SERVER_SIDE, id="server-side")])
def test_what_asks_for_a_share_behaves_like_what_does_not(kubectl, kind, steps):
    """W13, W16, design 3.5."""
    suffix = "-ssa" if steps is SERVER_SIDE else ""
    shared = take_through(kubectl, kind, f"shared{suffix}", SHARE, steps)
    plain = take_through(kubectl, kind, f"plain{suffix}", None, steps)
    for step, (status, stored, grown), (twin_status, twin, twin_grown) in zip(steps, shared, plain, strict=True):
        assert (step, status, visible(stored), grown) == (step, twin_status, visible(twin), twin_grown)
        assert asks_for_its_share(stored), step
        assert stored["metadata"]["uid"] == shared[0][1]["metadata"]["uid"]
        if step[0] in ENDS_WELL:
            assert status == 0, step
    again, diffs = shared[1], [seen for step, seen in zip(steps, shared, strict=True) if {*CHANGES_NOTHING} & {*step}]
    assert not any(grown for _, _, grown in (again, *diffs))
    assert again[1]["spec"] == shared[0][1]["spec"]


HOLDS = "what a pod holds never changes: delete the pod and create it anew"


def test_another_share_for_a_pod_is_refused_in_words_that_say_what_to_do(kubectl):
    kubectl("apply", "-f", kubectl.write("fixed.yaml", manifest("Pod", "fixed", SHARE)))
    before = kubectl.stored("Pod", "fixed")
    status, said = kubectl(
        "apply", "-f", kubectl.write("fixed.yaml", manifest("Pod", "fixed", {"limits": {names.GPU: "0.5"}}))
    )
    assert status == 1
    assert (
        "spec.containers[0].resources: nvidia.com/gpu 500m: main was admitted with nvidia.com/gpu 250m "
        f"and holds nvidia.com/mig-1g.10gb 1: {HOLDS}"
    ) in said
    status, said = kubectl("annotate", "pod", "fixed", f"{names.FRACTION}=0.5")
    assert (status, f"0.5 has no effect any more, for {HOLDS}" in said) == (0, True)
    assert kubectl.stored("Pod", "fixed")["spec"]["containers"] == before["spec"]["containers"]
    kubectl("delete", "pod", "fixed", "--grace-period=0", "--force")


def test_another_wish_in_a_template_takes_the_place_of_the_share(kubectl):
    """Also a whole GPU, beside which the annotation that we have written would be a fault of every pod."""

    def applied(resources):
        changed = manifest("Deployment", "varied", resources)
        changed["spec"]["replicas"] = 0
        status, said = kubectl("apply", "-f", kubectl.write("varied.yaml", changed))
        assert status == 0, said
        template = kubectl.stored("Deployment", "varied")["spec"]["template"]
        return template["metadata"].get("annotations", {}), template["spec"]["containers"][0]["resources"]

    assert applied(SHARE) == (ASKED, {})
    assert applied({"limits": {names.GPU: "0.5"}}) == ({**ASKED, names.FRACTION: "0.5"}, {})
    assert applied({"limits": {names.GPU: 1}}) == ({}, {"limits": {names.GPU: "1"}})
    assert applied(SHARE) == (ASKED, {})


def test_a_share_that_cannot_be_is_refused_with_its_path(kubectl):
    status, said = kubectl(
        "apply", "-f", kubectl.write("faulty.yaml", manifest("CronJob", "faulty", {"limits": {names.GPU: "1.5"}}))
    )
    assert status == 1
    assert (
        "spec.jobTemplate.spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: 1500m: ask for whole GPUs, or"
        in said
    )


def test_a_pod_that_waits_at_the_gate_goes_on_waiting_when_it_is_replaced(kubectl):
    """Of a pod that is bound nobody can replace the specification; of one that waits one can, and it must not slip through."""
    waiting = manifest("Pod", "waiting")
    waiting["spec"] |= {"serviceAccountName": "default", "automountServiceAccountToken": False}
    waiting["spec"]["schedulingGates"] = [{"name": "example.com/hold"}]
    for kind, resources in (
        ("slice", {"limits": {"nvidia.com/gpu-8gb": 1}}),
        ("share", {"limits": {names.GPU: "0.25"}}),
    ):
        waiting["metadata"]["name"] = f"waiting-{kind}"
        waiting["spec"]["containers"][0]["resources"] = resources
        file = kubectl.write("waiting.yaml", waiting)
        assert kubectl("create", "-f", file)[0] == 0
        before = kubectl.stored("Pod", f"waiting-{kind}")
        status, said = kubectl("replace", "-f", file)
        assert status == 0, said
        after = kubectl.stored("Pod", f"waiting-{kind}")
        assert after["spec"] == before["spec"]
        assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
        assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == ["example.com/hold", names.GATE]
        kubectl("delete", "pod", f"waiting-{kind}")


def test_a_pod_made_before_the_webhook_existed_stays_updatable_and_deletable(kubectl):
    """W13."""
    older = manifest("Pod", "older", {"limits": {names.GPU: 1}})
    older["metadata"] |= {"annotations": {names.FRACTION: "0.5"}, "finalizers": ["example.com/kept"]}
    file = kubectl.write("older.yaml", older)
    assert kubectl(*BEFORE_US, "apply", "-f", file)[0] == 0
    assert names.RECORD not in kubectl.stored("Pod", "older")["metadata"]["annotations"]
    for step in (
        ("apply", "-f", file), ("diff", "-f", file), ("label", "pod", "older", "a=b"), ("annotate", "pod", "older", "c=d"),
        ("annotate", "--overwrite", "pod", "older", f"{names.FRACTION}=0.25"),
        ("set", "image", "pod", "older", "main=registry.example/image:2"),
        ("delete", "pod", "older", "--wait=false"),
        ("patch", "pod", "older", "--type=merge", '--patch={"metadata":{"finalizers":null}}'),
        ("wait", "pod", "older", "--for=delete", "--timeout=40s"),
    ):  # fmt: skip
        status, said = kubectl(*step)
        assert status == 0, said


def test_who_turns_from_client_side_to_server_side_apply_forces_conflicts_once(kubectl):
    """Measured, and true of every field that a webhook takes away: the first manager still owns it, the object lacks it."""
    file = kubectl.write("turned.yaml", manifest("CronJob", "turned", SHARE))
    assert kubectl("apply", "-f", file)[0] == 0
    status, said = kubectl("apply", "--server-side", "-f", file)
    assert (status, "conflict" in said) == (1, True)
    assert kubectl("apply", "--server-side", "--force-conflicts", "-f", file)[0] == 0
    assert kubectl("apply", "--server-side", "-f", file)[0] == 0
    assert template_of(kubectl.stored("CronJob", "turned"))["metadata"]["annotations"] == ASKED
