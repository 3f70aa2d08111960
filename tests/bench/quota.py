"""`quota`: how fast gated pods are released on the sandbox, how long settling and reclaiming take, and a claim.

Released: the pods of a governed namespace are created first and wait for nodes of a label; then all nodes get it, and
the time counts from there until the last pod has lost its gate. The API server, the scheduler and kwok share the machine.
"""

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from console.sandbox.lifecycle import Sandbox
from console.sandbox.watching import PodWatch
from kube.client import Client
from kube.informer import Informer
from kube.resource import PODS
from policies import names
from policies.governing import view_quota
from policies.model import ElasticQuota, Pod
from policies.settle import settle
from policies.view import View, view_node, view_pod
from tests.bench.figures import Figure, percentile
from tests.builders import A100, make_node, make_pod
from tests.policies.takeback import lent_boards, victims, view_of

GATED = 10_000
CREATORS = 8
OPEN = {"open": "yes"}
SETTLED_PODS, QUOTAS, NODES = 20_000, 200, 1000
RECLAIMED = 64
ROUNDS = 5
CLAIMS = 20
WAIT_S = 600.0


def run() -> Iterator[Figure]:
    """Measure releases, settling and claims."""
    yield Figure("quota.settle", _settle_s() * 1000, "ms", "<=", 200)
    yield Figure(f"quota.reclaim.{RECLAIMED}", _reclaim_s() * 1000, "ms", "<=", 200)
    yield Figure("quota.released", _released_per_s(), "pods/s", ">=", 200)
    times = _claim_times_s()
    yield Figure("quota.claim.median", percentile(times, 0.5) * 1000, "ms", "<=", 1000)


def _settle_s() -> float:
    """Return the processor seconds of one settle over running pods, a few that wait, and as many quotas as namespaces."""
    return _timed(_large_view(random.Random(1)))


def _reclaim_s() -> float:
    """Return the processor seconds in which teams take slices back across 16 nodes, from whom section 4 says."""
    case = lent_boards(random.Random(1), 16, "1g.5gb", RECLAIMED)
    view = view_of(*case)
    assert [(evict.claimant, evict.pod) for evict in settle(view).evict] == victims(*case)
    return _timed(view)


def _timed(view: View) -> float:
    """Return the processor seconds of a settle, when one has been before."""
    settle(view)
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        settle(view)
        times.append(time.process_time() - started)
    return percentile(times, 0.5)


def _large_view(chance: random.Random) -> View:
    """Return 1,000 nodes of 8 boards full of 1g.5gb but for a few, 200 namespaces with a quota each, 20,000 pods."""
    placed = {
        str(index): [{"profile": "1g.5gb", "start": start, "used": True} for start in range(7)] for index in range(8)
    }
    nodes = tuple(
        view_node(make_node(f"n{number}", A100, count=8, placements=placed, resources={"nvidia.com/mig-1g.5gb": "56"}))
        for number in range(NODES)
    )
    limits = {"nvidia.com/mig-1g.5gb": "1"}
    pods = tuple(
        view_pod(
            make_pod(
                f"team-{number % QUOTAS}/p{number}",
                limits=limits,
                uid=f"uid-{number}",
                created=f"2026-03-02T{chance.randrange(24):02}:{chance.randrange(60):02}:00Z",
                **(
                    {"node": f"n{number % NODES}", "phase": "Running"}
                    if number < SETTLED_PODS - 100
                    else {"gates": [names.GATE]}
                ),
            )
        )
        for number in range(SETTLED_PODS)
    )
    quotas = tuple(view_quota(_quota(f"team-{number}", "500")) for number in range(QUOTAS))
    return View(nodes=nodes, pods=pods, quotas=quotas, now=1772500000.0)


def _quota(namespace: str, gigabytes: str) -> ElasticQuota:
    raw = {
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": {"min": {names.GPU_MEMORY_QUOTA: gigabytes}, "max": {names.GPU_MEMORY_QUOTA: "1000"}},
    }
    return msgspec.convert(raw, ElasticQuota)


def _manifest(namespace: str, minimum: dict[str, str]) -> str:
    return json.dumps(
        {
            "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
            "kind": "ElasticQuota",
            "metadata": {"name": "quota", "namespace": namespace},
            "spec": {"min": minimum},
        }
    )


def _pod(name: str, selector: dict[str, str] | None = None, **resources: str) -> dict:
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": resources}}
    if "cpu" not in resources:
        container["resources"] = {"limits": resources}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0, "nodeSelector": selector or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _released_per_s() -> float:
    """Return how many of many waiting pods are released per second once their quota may have them all."""
    with Sandbox.start({"t4": GATED // 400}) as sandbox:
        sandbox.kubectl("create", "namespace", "crowd")
        sandbox.kubectl("apply", "-f", "-", stdin=_manifest("crowd", {"cpu": "1000"}))
        client = Client.load(str(sandbox.kubeconfig))
        _until_governed(sandbox, "crowd", _pod("probe", cpu="10m"))
        released: set[str] = set()
        all_released = threading.Event()

        def note(key: str, _old: bool | None, gated: bool | None) -> None:
            if gated is False:
                released.add(key)
                if len(released) >= GATED:
                    all_released.set()

        watch = Informer(client, PODS, _is_gated, namespace="crowd")
        watch.on_change(note)
        watch.start()
        with ThreadPoolExecutor(CREATORS) as creators:
            list(
                creators.map(lambda n: client.create(PODS.path("crowd"), _pod(f"p{n}", OPEN, cpu="10m")), range(GATED))
            )
        started = time.monotonic()
        sandbox.kubectl("label", "nodes", "--all", "open=yes")
        all_released.wait(WAIT_S)
        took = time.monotonic() - started
        watch.stop()
        client.close()
        return len(released) / took


class _Spec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[msgspec.Raw] = []


class _Pod(msgspec.Struct):
    spec: _Spec


_POD = msgspec.json.Decoder(_Pod)


def _is_gated(raw: bytes) -> bool:
    """Return whether a pod is gated; no more is read of it, since the benchmark shares the machine with what it measures."""
    return bool(_POD.decode(raw).spec.scheduling_gates)


def _until_governed(sandbox: Sandbox, namespace: str, pod: dict) -> None:
    """Return once such a pod would be counted: the quota has come to our processes and its label to the API server's."""
    client = Client.load(str(sandbox.kubeconfig), dry_run=True)
    while not view_pod(msgspec.json.decode(client.create(PODS.path(namespace), pod), type=Pod)).capacity:
        time.sleep(0.05)
    client.close()


def _claim_times_s() -> list[float]:
    """Return the seconds from the creation of a claimant to its running, when a borrower must go for it."""
    seven = {"nvidia.com/mig-7g.40gb": "1"}
    with Sandbox.start({"a100-40": 2}) as sandbox:
        for team in ("lender", "crowd"):
            sandbox.kubectl("create", "namespace", team)
            sandbox.kubectl("apply", "-f", "-", stdin=_manifest(team, {names.GPU_MEMORY_QUOTA: "40"}))
        for team in ("lender", "crowd"):
            _until_governed(sandbox, team, _pod("probe", **seven))
        times = []
        with PodWatch(sandbox, "crowd") as crowd, PodWatch(sandbox, "lender") as lender:
            for number in range(CLAIMS):
                for borrower in (f"own-{number}", f"borrowed-{number}"):
                    crowd.create(_pod(borrower, **seven))
                    crowd.wait(borrower, lambda pod: pod is not None and pod.running, WAIT_S)
                claim = f"claim-{number}"
                started = time.monotonic()
                lender.create(_pod(claim, **seven))
                lender.wait(claim, lambda pod: pod is not None and pod.running, WAIT_S)
                times.append(time.monotonic() - started)
                for watch in (lender, crowd):
                    for pod in watch.all():
                        watch.delete(pod.name)
                        watch.wait(pod.name, lambda pod: pod is None, WAIT_S)
    return times
