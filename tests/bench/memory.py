"""`memory`: what webhook and reconciler hold in a cluster of 20,000 pods and 1,000 nodes of 8 boards.

The real processes beside a server that has the objects, as large as they come from a cluster. A figure is the
proportional set size of all processes of one replica, the most of many looks: at the webhook until it has listed
all, at the reconciler until it has labelled 16,000 pods and told some of the 4,000 that wait why they do.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trustme

from policies import names
from policies.annotations import PlacedSlice, write_status
from tests.apiserver.objects import Objects
from tests.apiserver.server import ApiServer, Request, Wire
from tests.bench.figures import Figure
from tests.builders import A100, raw_node, raw_pod

NODE_COUNT = 1000
BOARDS = 8
RUNNING = 16_000
WAITING = 4_000
ALL = RUNNING + WAITING
TEAMS = 50
TOLD = 500  # of them, after all labels: 25 of them are told in a second
PATIENCE_S = 240.0
LOOK_S = 0.1

NODES, PODS, ELASTIC = "/api/v1/nodes", "/api/v1/pods", "/apis/nos.nebuly.com/v1alpha1/elasticquotas"
LAYOUT = (("4g.20gb", 0), ("3g.20gb", 4))  # of every board, all in use: the others wait


def run() -> Iterator[Figure]:
    """Measure one after the other."""
    with ApiServer() as server, tempfile.TemporaryDirectory() as directory:
        server.otherwise = cluster = _Cluster()
        kubeconfig = f"--kubeconfig={server.kubeconfig(Path(directory))}"
        with _running("webhook", kubeconfig, "--listen=127.0.0.1:0", f"--tls-dir={_tls(Path(directory))}") as process:
            yield Figure("memory.webhook", _most_mib(process, lambda: NODES in cluster.watched), "MiB", "<=", 120)
        cluster.watched.clear()
        with _running("reconciler", kubeconfig, "--port=0") as process:
            yield Figure("memory.reconciler", _most_mib(process, lambda: len(cluster.told) >= TOLD), "MiB", "<=", 300)


class _Cluster(Objects):
    """Answers lists in pages, holds watches open in silence, and keeps what is written.

    Attributes:
        watched: paths of what is watched: it has been listed to the end.
        told: paths of the pods that have been told why they wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watched: set[str] = set()
        self.told: set[str] = set()
        lists: dict[str, list[dict]] = {NODES: [*map(_node, range(NODE_COUNT))], PODS: [*map(_pod, range(ALL))]}
        lists[ELASTIC] = [*map(_quota, range(TEAMS))]
        lists["/api/v1/namespaces"] = [{"metadata": {"name": f"team-{number}"}} for number in range(TEAMS)]
        self._lists = {path: [self._keep(_path(path, item), item) for item in items] for path, items in lists.items()}

    def __call__(self, request: Request, wire: Wire) -> None:
        if request.watch:
            self.watched.add(request.path)
            wire.open()
            wire.hold()
        elif request.path.endswith("/events"):
            wire.json(201, {"metadata": {"name": "event"}})
        elif request.method == "GET" and not self._is_object(request.path):
            wire.json(200, self._page(request))
        else:
            super().__call__(request, wire)

    def patch(self, request: Request) -> tuple[int, object]:
        path, told = request.path.removesuffix("/status"), request.path.endswith("/status")
        if told and "/pods/" in path:
            self.told.add(path)
        # A strategic patch of conditions, of which there are none but ours, is a merge patch.
        return super().patch(request._replace(path=path, headers={"Content-Type": "application/merge-patch+json"}))

    def _is_object(self, path: str) -> bool:
        return path in self._objects or "/leases/" in path

    def _page(self, request: Request) -> dict[str, object]:
        found = self._lists.get(request.path, [])
        start, size = int(request.query.get("continue", 0)), int(request.query.get("limit", 500))
        more = str(start + size) if start + size < len(found) else ""
        return {"metadata": {"resourceVersion": str(self._version), "continue": more}, "items": found[start:][:size]}


def _path(collection: str, item: dict) -> str:
    root, _, kind = collection.rpartition("/")
    space = item["metadata"].get("namespace")
    return (
        f"{root}/namespaces/{space}/{kind}/{item['metadata']['name']}"
        if space
        else f"{collection}/{item['metadata']['name']}"
    )


def _node(number: int) -> dict:
    first = number * BOARDS * len(LAYOUT)
    boards: dict[int, tuple[PlacedSlice, ...]] = {}
    for index in range(BOARDS):
        places = enumerate(LAYOUT, first + index * len(LAYOUT))
        boards[index] = tuple(
            PlacedSlice(profile=profile, start=start, used=True, pod=_key(pod)) for pod, (profile, start) in places
        )
    resources = {f"nvidia.com/mig-{profile}": str(BOARDS) for profile, _ in LAYOUT}
    node = raw_node(f"node-{number}", A100, count=BOARDS, annotations=write_status(boards, "1"), resources=resources)
    node["metadata"]["managedFields"] = _managed(6)
    node["status"]["images"] = [
        {"names": [f"registry.example/{'x' * 60}:{tag}"], "sizeBytes": tag} for tag in range(50)
    ]
    return node


def _pod(number: int) -> dict:
    """Return a pod as it comes from a cluster, some 6 kB: one that runs, or one that waits for a whole board."""
    limits = {"cpu": "4", "memory": "16Gi"}
    common = {"labels": {"app": f"train-{number % 100}", "pod-template-hash": "6d4f7c9b8d"}, "owner": True}
    common |= {"created": f"2026-03-02T{number % 24:02}:{number % 60:02}:00Z"}
    if number >= RUNNING:
        limits |= {"nvidia.com/mig-7g.40gb": "1"}
        pod = raw_pod(_key(number), limits=limits, gates=[names.GATE], **common)
    else:
        board, place = divmod(number, len(LAYOUT))
        limits |= {f"nvidia.com/mig-{LAYOUT[place][0]}": "1"}
        pod = raw_pod(_key(number), limits=limits, node=f"node-{board // BOARDS}", phase="Running", **common)
    pod["metadata"]["managedFields"] = _managed(4)
    pod["spec"]["containers"][0]["env"] = [{"name": f"SETTING_{index}", "value": "x" * 40} for index in range(20)]
    return pod


def _key(number: int) -> str:
    return f"team-{number % TEAMS}/train-{number}-6d4f7c9b8d-x2x9q"


def _quota(number: int) -> dict:
    meta = {"name": "quota", "namespace": f"team-{number}", "uid": f"quota-{number}", "generation": 1}
    return {"metadata": meta, "spec": {"min": {names.GPU_MEMORY_QUOTA: 8000}}}


def _managed(writers: int) -> list[dict]:
    """Return what the API server keeps of who has written which field: most of what it sends, and nothing to us."""
    fields = {f"f:field-{index}": {"f:nested": {}} for index in range(20)}
    return [{"manager": f"writer-{each}", "operation": "Update", "fieldsV1": fields} for each in range(writers)]


def _tls(directory: Path) -> Path:
    pair = trustme.CA().issue_cert("127.0.0.1")
    pair.private_key_pem.write_to_path(str(directory / "tls.key"))
    for pem in pair.cert_chain_pems:
        pem.write_to_path(str(directory / "tls.crt"), append=True)
    return directory


@contextmanager
def _running(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _most_mib(process: "subprocess.Popen[bytes]", done: Callable[[], bool]) -> float:
    """Return the most that a process and its children have held until it is done, and for some looks after."""
    most, after, until = 0.0, 0, time.monotonic() + PATIENCE_S
    while after < 20:
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"{process.args} has not come as far as it should")
        most = max(most, sum(map(_pss_mib, _family(process.pid))))
        after += done()
        time.sleep(LOOK_S)
    return most


def _family(pid: int) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield from _family(int(child))


def _pss_mib(pid: int) -> float:
    found = re.search(r"^Pss:\s*(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
