"""A mutating webhook of another party: a small HTTPS server that patches the pods of one namespace."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import trustme

from kube.client import Client
from kube.resource import MUTATING_WEBHOOKS, PODS


class Injector:
    """It answers every review with `patch(pod)`, JSON operations, and notes how often it was asked."""

    def __init__(self) -> None:
        self.patch = lambda _pod: []
        self.asked = 0
        injector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
                injector.asked += 1
                patch = base64.b64encode(json.dumps(injector.patch(request["object"])).encode()).decode()
                response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch", "patch": patch}
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
        self._bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    @contextmanager
    def installed(self, client: Client, name: str, namespace: str, reinvoked: str) -> Iterator[None]:
        """Be asked under this name, which decides on the order, about pods of the namespace."""
        webhook = {
            "name": "injector.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"url": f"https://127.0.0.1:{self._server.server_port}/", "caBundle": self._bundle},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}, "reinvocationPolicy": reinvoked,
        }  # fmt: skip
        client.create(MUTATING_WEBHOOKS.path(), {"metadata": {"name": name}, "webhooks": [webhook]})
        try:
            deadline, asked = time.monotonic() + 15, self.asked
            probe = {"metadata": {"generateName": "probe-"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
            while self.asked == asked:
                assert time.monotonic() < deadline, "the API server did not take notice"
                client.request("POST", PODS.path(namespace), query={"dryRun": "All"}, body=json.dumps(probe).encode())
            yield
        finally:
            client.delete(MUTATING_WEBHOOKS.path(name=name))
            self.patch = lambda _pod: []
