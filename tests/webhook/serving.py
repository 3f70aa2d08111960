"""A webhook server with made-up reviews, as a process of its own: `serving.py FD CERTIFICATE_DIRECTORY DRAIN_S`."""

import sys
from pathlib import Path

from certs.mounted import Mounted
from kube import logs
from webhook.app import create_app
from webhook.metrics import Metrics
from webhook.server import Server, Serving
from webhook.worker import THREADS, Worker


def mutate(body: bytes) -> bytes:
    if body.startswith(b"fail"):
        raise RuntimeError("as asked")
    return b'{"response":{"allowed":true},"bytes":%d}' % len(body)


def build(worker: Worker) -> Serving:
    mounted = Mounted(Path(sys.argv[2]))
    metrics = Metrics()
    metrics.watch_load(lambda: worker.busy, THREADS)
    app = create_app(
        mutate=mutate,
        validate=lambda _: b'{"response":{"allowed":false}}',
        synced=lambda: True,
        unready=lambda: ["shutting down"] if worker.draining else [],
        metrics=metrics,
    )
    return Serving(app=app, context=mounted.context.current, close=lambda: print("closed", flush=True))


if __name__ == "__main__":
    logs.configure()
    Server(build, listen=f"fd://{sys.argv[1]}", drain_s=float(sys.argv[3])).run()
