"""A real API server with our webhook configurations in front of a server that records what it is asked.

The rendered configurations are applied under another name, for one namespace only. It is `gpu-operator`, since the
product's own webhooks leave it alone.
"""

import json
import ssl
import threading
import time
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import trustme

from kube.client import Client
from kube.resource import MUTATING_WEBHOOKS, PODS, VALIDATING_WEBHOOKS

NAMESPACE = "gpu-operator"


class Recorder:
    """An admission webhook that allows everything and remembers what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []  # (name of the pod, path and operation)
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
                what = request.get("subResource") or request["operation"]
                recorder.asked.append((request.get("name", ""), f"{self.path.partition('?')[0]} {what}"))
                response = {"uid": request["uid"], "allowed": True}
                review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
                content = json.dumps(review).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_) -> None:
                pass

        authority = trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.bundle = authority.cert_pem.bytes()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def about(self, name: str) -> list[str]:
        return [what for asked, what in self.asked if asked == name]


def pod(name: str, *, annotations=None, labels=None, spec=None, **container) -> dict:
    """Return a pod that no node fits, so that it stays as it is."""
    metadata = {"name": name, **({"annotations": annotations} if annotations else {}), "labels": labels or {}}
    main = {"name": "main", "image": "registry.example/image:1", **container}
    return {"metadata": metadata, "spec": {"nodeSelector": {"none": "such"}, "containers": [main], **(spec or {})}}


def gpu(amount="1", name="nvidia.com/gpu") -> dict:
    return {"limits": {name: amount}}


class Cluster:
    """The API server, with our configurations renamed and narrowed to one namespace."""

    def __init__(self, sandbox, base, namespace: str) -> None:
        self.sandbox, self.base, self.namespace = sandbox, base, namespace
        self.client = Client.load(str(sandbox.kubeconfig))
        self.pods = PODS.path(namespace)

    def direct_to(self, url: str, bundle: bytes) -> None:
        """Have the API server call this URL for pods of the namespace."""
        for resource, kind in self._configurations():
            configuration = deepcopy(self.base.one(kind))
            configuration["metadata"] = {"name": f"test-{self.namespace}"}
            for webhook in configuration["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {"url": url + path, "caBundle": bundle}
                only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [self.namespace]}
                chosen = webhook["namespaceSelector"].get("matchExpressions", [])
                kept = [term for term in chosen if term["key"] != only["key"]]
                webhook["namespaceSelector"] = {"matchExpressions": [only, *kept]}
            self.client.create(resource.path(), configuration)

    def undirect(self) -> None:
        for resource, _ in self._configurations():
            self.client.delete(resource.path(name=f"test-{self.namespace}"))
        self.client.close()

    def create(self, obj: dict, *, dry_run: bool = False) -> None:
        query = {"dryRun": "All"} if dry_run else {}
        self.client.request("POST", self.pods, query=query, body=json.dumps(obj).encode())

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.sandbox.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin)

    def reaches(self, condition, timeout_s: float = 30.0) -> None:
        """Wait until the API server has taken notice; it follows its own configuration by a watch."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the API server did not take notice"
            threading.Event().wait(0.05)

    @staticmethod
    def _configurations():
        return (
            (MUTATING_WEBHOOKS, "MutatingWebhookConfiguration"),
            (VALIDATING_WEBHOOKS, "ValidatingWebhookConfiguration"),
        )
