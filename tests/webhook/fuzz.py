"""Reviews that nobody would write: those of the scenarios, changed at random where their structure lets one.

Deterministic by seed. `Fuzzer.next` returns a review and whether its envelope is sound; `faults` says what is wrong with
the answer to it. The laws: a sound review is answered, whatever the object in it is, and one whose envelope is not is
malformed, never an error of ours; what is allowed is patched so that the patch applies, writes what is ours alone, changes
nothing the second time, and leaves no wish for a GPU unanswered (see `unanswered`).
"""

import base64
import copy
import functools
import json
import random
from pathlib import Path

import jsonpatch
import yaml

from policies import names
from policies.templates import KINDS
from tests.policies.owned import not_ours, unanswered
from webhook.errors import MalformedReview
from webhook.review import mutate, validate

_SCENARIOS = Path(__file__).parents[1] / "scenarios"
_NAMESPACES = ("team-a", "team-a", "strict", "lent", "idle", "broken", "one", "ruled", "faulty", "")
_SUBRESOURCES = ("", "", "", "resize", "ephemeralcontainers", "status")
_USERS = ("alice", "alice", "system:node:n1", "system:serviceaccount:apportion-system:apportion-reconciler", "")
_PLURALS = {
    "Pod": ("", "pods"),
    "Namespace": ("", "namespaces"),
    "ElasticQuota": (names.API_GROUP, "elasticquotas"),
    "CompositeElasticQuota": (names.API_GROUP, "compositeelasticquotas"),
    "GpuPolicy": (names.API_GROUP, "gpupolicies"),
    **{kind.name: (kind.group, kind.plural) for kind in KINDS},
}
_ANNOTATIONS = (
    names.FRACTION, names.MEMORY, names.COUNT, names.MODE, names.CONTAINER, names.RECORD, names.EVICTED_FOR, names.NON_PREEMPTIBLE,
    f"{names.FRACTION}.main", f"{names.MEMORY}.main", f"{names.COUNT}.main", f"{names.MODE}.main", f"{names.FRACTION}.", f"{names.FRACTION}..a",
    "nos.nebuly.com/gpu-fractoin", "nos.nebuly.com/GPU-memory", "nos.nebuly.com/", "nos.nebuly.com/a/b~c", "gpu-fraction", "a.example/b~/c",
)  # fmt: skip
_RESOURCES = (
    names.GPU, names.GPU_SHARED, "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.me", "nvidia.com/mig-7g.79gb", "nvidia.com/mig-1g.5gb ",
    "nvidia.com/gpu-10gb", "nvidia.com/gpu-10g", "nvidia.com/gpu-0gb", "nvidia.com/GPU-10gb", "nvidia.com/gpumem", "nvidia.com.gpu",
    "nos.nebuly.com/gpu-memory", "cpu", "memory", "example.com/a~b", "", "nvidia.com/",
)  # fmt: skip
_TEXTS = (
    "0.5", "0.25", "1/7", "500m", "1", "2", "0", "-1", "1e3", "1e-30", "1E999", "9" * 70, "0." + "0" * 70 + "1", "1/0", "0/1", "-1/7", "50%", "NaN", "inf",
    "½", "\u0661", " 0.5", "0.5\n", "10Gi", "10GiB", "4GB", "4 GB", "1Ei", "mig", "mps", "mps,mig", "timeslicing", "mig,,", "all", "void", "main", "true", "",
    "~", "/", "~1", "\u0000", "値", "x" * 300, "nos-scheduler", "Always", "2026-01-01T00:00:00Z", "{}", '{"v":1,"containers":{}}',
    '{"v":1,"containers":{"main":{"asked":{"nvidia.com/gpu":"500m"},"given":{"nvidia.com/mig-3g.20gb":"1"},"mode":"mig"}}}',
)  # fmt: skip
_SCALARS = (None, None, True, False, 0, 1, -1, 2, 0.5, 1e308, 10**30, -(10**19))
_KEYS = (
    "metadata", "spec", "annotations", "labels", "limits", "requests", "resources", "containers", "initContainers", "env", "name", "value",
    "securityContext", "runAsUser", "privileged", "affinity", "nodeAffinity", "schedulingGates", "nodeName", "hostIPC", "restartPolicy", "overhead",
    "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms", "matchExpressions", "tolerations", "nodeSelector", "volumeMounts", "mountPath",
    "template", "min", "max", "namespaces", "rules", "match", "wholeGpu", "limits", "modes", "deletionTimestamp", "ephemeralContainers", "schedulerName", "priority", "status", "phase",
)  # fmt: skip


@functools.cache
def _seeds():
    """Return (kind, object) of everything in the scenarios that is reviewed."""
    texts = [path.read_text() for path in sorted(_SCENARIOS.glob("*/*.yaml"))]
    found = [one for text in texts for one in yaml.load_all(text, yaml.CSafeLoader) if one]
    return [json.loads(json.dumps(one, default=str)) for one in found if one["kind"] in _PLURALS]


class Fuzzer:
    """A stream of reviews, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._by_kind = {}
        for one in _seeds():
            self._by_kind.setdefault(one["kind"], []).append(one)
        for kind in KINDS:
            self._by_kind.setdefault(kind.name, []).extend(_workload(kind, pod) for pod in self._by_kind["Pod"][:20])
        self._kinds = [*["Pod"] * 3 * len(self._by_kind), *self._by_kind]

    def next(self):
        """Return (call, review, whether its envelope is sound)."""
        some = self._random
        kind = some.choice(self._kinds)
        obj = copy.deepcopy(some.choice(self._by_kind[kind]))
        group, plural = _PLURALS[kind]
        update = some.random() < 0.3
        old = copy.deepcopy(obj) if update else None
        for _ in range(some.choice((0, 1, 1, 2, 3, 6))):
            obj = self._changed(obj)
        if old and some.random() < 0.5:
            old = self._changed(old)
        mutates = kind == "Pod" or any(kind == each.name for each in KINDS)
        call = validate if not mutates or (kind == "Pod" and some.random() < 0.3) else mutate
        request = {
            "uid": "7b2e",
            "resource": {"group": group, "version": "v1", "resource": plural},
            "operation": "UPDATE" if update else "CREATE",
            "subResource": some.choice(_SUBRESOURCES) if update else "",
            "namespace": some.choice(_NAMESPACES),
            "userInfo": {"username": some.choice(_USERS), "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": old,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        sound = some.random() > 0.02
        return call, review if sound else self._changed(review), sound

    def _changed(self, tree):
        """Return a tree with one thing changed somewhere in it."""
        some = self._random
        places = list(_places(tree))
        if not places:
            return some.choice((tree, None, [], {}, "text"))
        holder, key = some.choice(places)
        match some.randrange(8):
            case 0:
                del holder[key]
            case 1:
                holder[key] = some.choice(_SCALARS)
            case 2 | 3:
                holder[key] = some.choice(_TEXTS)
            case 4:
                holder[key] = copy.deepcopy(some.choice([one[at] for one, at in places]))
            case 5 if isinstance(holder, dict):
                holder[some.choice((*_ANNOTATIONS, *_RESOURCES, *_KEYS))] = holder.pop(key)
            case 6 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case _:
                inner = holder[key] if isinstance(holder[key], dict) else holder
                if isinstance(inner, dict):
                    self._ask(inner)
        return tree

    def _ask(self, inner):
        """Write something that asks for a GPU, or nearly, at a place that may be the right one."""
        some = self._random
        inner[some.choice((*_ANNOTATIONS, *_RESOURCES))] = some.choice((*_TEXTS[:14], *_TEXTS))
        if "containers" in inner and some.random() < 0.5:
            amounts = {some.choice(_RESOURCES): some.choice(_TEXTS[:14])}
            inner["containers"] = [{"name": "main", "resources": {"limits": amounts, "requests": dict(amounts)}}]


def faults(call, review, cluster, *, sound, foreign=()):
    """Return what is wrong with the answer to a review."""
    body = json.dumps(review).encode()
    try:
        response = json.loads(call(body, cluster))["response"]
    except MalformedReview as error:
        return [f"malformed: {error}"] if sound else []
    except Exception as error:  # noqa: BLE001 - whatever it is, it would be an HTTP 500
        return [f"{type(error).__name__}: {error}"]
    if not response["allowed"]:
        told = response["status"]["message"] and response["status"]["code"] in (403, 422) and "patch" not in response
        return [] if told else [f"denied without a word: {response}"]
    if not sound or call is validate:
        return []
    return _of_the_patch(call, review, response, cluster, foreign)


def _of_the_patch(call, review, response, cluster, foreign):
    request = review["request"]
    pod, ours = request["object"], request["userInfo"]["username"].startswith("system:serviceaccount:apportion-system:")
    patch = json.loads(base64.b64decode(response.get("patch", "W10=")))
    if not patch and (ours or request["operation"] == "UPDATE"):
        return []
    try:
        after = jsonpatch.apply_patch(json.loads(json.dumps(pod)), patch, in_place=True)
    except jsonpatch.JsonPatchException as error:
        return [f"the patch does not apply: {error!r}"]
    found = []
    again = {**review, "request": {**request, "object": after}}
    second = json.loads(call(json.dumps(again).encode(), cluster))["response"]
    if not second["allowed"] or "patch" in second:
        found.append(f"the second review is not empty: {second}")
    if request["resource"]["resource"] == "pods" and request["operation"] == "CREATE":
        found += [f"not ours: {path}" for path in not_ours(pod, after)]
        found += [f"unanswered: {what}" for what in unanswered(after, foreign)]
        if not json.loads(validate(json.dumps(again).encode(), cluster))["response"]["allowed"]:
            found.append("the last look denies what was admitted")
    return found


# ---------------------------------------------------------------------------------------------------------------------


def _places(tree):
    """Yield (holder, key) of everything in a tree."""
    stack = [tree]
    while stack:
        holder = stack.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ():
            yield holder, key
            if isinstance(holder[key], (dict, list)):
                stack.append(holder[key])


def _workload(kind, pod):
    """Return a workload with a pod's specification in its template."""
    inner = {"metadata": {"annotations": pod["metadata"].get("annotations")}, "spec": pod["spec"]}
    for step in reversed(kind.template):
        inner = {step: inner}
    return {"kind": kind.name, "metadata": {"name": "w"}, **inner}
