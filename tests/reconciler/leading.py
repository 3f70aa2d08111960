"""A leader that is taken through its term cycle by cycle: what it sees is put before it, and the clock is the test's."""

import json
import threading

from kube.lease import Leadership
from kube.store import Entry
from reconciler.controller import Controller
from reconciler.health import Pulse


class Leader:
    """One term, for as long as `held` says so; `now` is the time of day, where it is not `clock`'s."""

    def __init__(self, client, clock, now=None, **options):
        self.held = lambda: True
        leadership = Leadership(float("inf"), clock)
        leadership.held = lambda: self.held()  # noqa: PLW0108 (a test gives it another meanwhile)
        self.controller = Controller(
            client,
            leadership,
            threading.Event(),
            Pulse(),
            write_timeout_s=5.0,
            now=now or (lambda: 1.8e9 + clock()),
            clock=clock,
            **options,
        )

    def see(self, version, *, nodes=(), pods=(), quotas=(), namespaces=()):
        """Put objects before the leader, as its watches would, each quota under its kind."""
        seen = self.controller.cluster
        fill(seen.nodes, nodes, version)
        fill(seen.pods, pods, version)
        fill(seen.namespaces, namespaces, version)
        for kind in seen.quotas:
            fill(seen.quotas[kind], [quota for quota in quotas if quota["kind"] == kind], version)

    def cycle(self):
        return self.controller.cycle()

    def close(self):
        for part in (self.controller._applier, self.controller._evictor, self.controller._recorder):
            part.close()


def fill(informer, objects, version):
    entries = {}
    for raw in objects:
        meta = raw["metadata"]
        key = "/".join(part for part in (meta.get("namespace"), meta["name"]) if part)
        entries[key] = Entry(meta.get("uid", ""), meta["resourceVersion"], informer.project(json.dumps(raw).encode()))
    informer.store.replace(entries, version)
