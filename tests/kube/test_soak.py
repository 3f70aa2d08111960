"""What a long life costs: memory by what is kept, not by what is sent (R08); no threads and connections left over (R09)."""

import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from kube.client import Client
from kube.informer import Informer
from kube.resource import PODS
from tests.apiserver.server import PATIENCE_S, ApiServer, Request, Wire
from tests.apiserver.steps import events, listing, pod, refusal

PATH = "/api/v1/pods"
PODS_LISTED, PER_PAGE = 10_000, 500

# Runs alone, so that only the client's memory is measured: prints the peak growth in MiB, and how many were kept.
FOLLOW = """
import sys
import msgspec
from kube.client import Client
from kube.informer import Informer
from kube.resource import PODS

class Spec(msgspec.Struct, gc=False):
    nodeName: str
class Pod(msgspec.Struct, gc=False):
    spec: Spec
decoder = msgspec.json.Decoder(Pod)

def peak():
    # Not ru_maxrss: that begins with what the parent of this process had.
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) / 1024

client = Client.load(sys.argv[1])
client.get("/version")
informer = Informer(client, PODS, decoder.decode)
before = peak()
informer.start()
assert informer.synced.wait(60)
print(f"{peak() - before:.1f} {len(informer.store.list())}")
"""


def big_pod() -> dict[str, object]:
    """A pod of about 9 KB, most of it of no use to us, as managedFields are."""
    fields = [{"manager": f"m{i}", "fieldsV1": {f"f:field-{i}-{j}": {"f:x": {}} for j in range(20)}} for i in range(14)]
    return {
        "metadata": {
            "name": "NAME",
            "namespace": "ns",
            "uid": "u-NAME",
            "resourceVersion": "5",
            "managedFields": fields,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "env": [{"name": "BIG", "value": "x" * 2000}]}]},
    }


def test_ten_thousand_big_pods_take_no_more_than_their_projections_and_a_page(
    server: ApiServer, tmp_path: Path
) -> None:
    """R08: 90 MB of JSON; kept are 10 000 projections (about 5 MiB), in flight one page (4.5 MB, and its parts)."""
    template = msgspec.json.encode(big_pod())

    def page(request: Request, wire: Wire) -> None:
        first = int(request.query.get("continue", "0"))
        last = first + PER_PAGE
        more = str(last) if last < PODS_LISTED else ""
        items = b",".join(template.replace(b"NAME", b"p%d" % number) for number in range(first, last))
        meta = msgspec.json.encode({"resourceVersion": "10", "continue": more})
        wire.reply(200, b'{"metadata":%s,"items":[%s]}' % (meta, items))

    assert len(template) * PODS_LISTED > 80e6
    server.route("GET", "/version", lambda _, wire: wire.json(200, {}))
    server.route("GET", PATH, page)
    server.route("GET", PATH, events(), watch=True)
    command = [sys.executable, "-c", FOLLOW, server.kubeconfig(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    grown_mib, kept = done.stdout.split()[-2:]
    assert int(kept) == PODS_LISTED
    assert float(grown_mib) < 40.0


def test_hundreds_of_rounds_of_every_kind_leave_no_thread_and_no_connection(server: ApiServer, client: Client) -> None:
    """R09"""
    rounds = 0
    enough = threading.Event()

    def pause(stopped: threading.Event, _: float) -> bool:
        nonlocal rounds
        rounds += 1
        if rounds < 225:
            return stopped.is_set()
        enough.set()
        return stopped.wait(PATIENCE_S)

    server.route("GET", PATH, listing([pod("a", 1, node="n1")], 10))
    # A round each, but the second: a refusal to resume and what follows it share one.
    answers = [events(then="end"), refusal(410, "Expired"), refusal(500), events(then="end")]
    server.route("GET", PATH, *answers * 75, events(then="end"), watch=True)
    threads = {thread.name for thread in threading.enumerate()}
    informer = Informer(client, PODS, lambda raw: raw, pause=pause)
    informer.start()
    assert enough.wait(PATIENCE_S)
    informer.stop()
    assert len(server.asked("GET", PATH, watch=True)) == 300
    assert server.connections == 1, "streams that end in good order give their connection back"
    left = {thread.name for thread in threading.enumerate()} - threads
    assert [name for name in left if "process_request_thread" not in name] == []
