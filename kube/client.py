"""The one connection of a process to the API server: raw bytes in, raw bytes or a typed error out.

The Kubernetes client library reads the kubeconfig or the service account, sets up TLS and keeps tokens fresh; its
generated models are not used (a Pod costs 65 times what msgspec needs, and unknown fields are lost). Importing it costs
18 MiB over what the process holds anyway (urllib3, msgspec, structlog); the models load lazily and stay unloaded.

One `Client` per process (pain R09): it is thread-safe, keeps connections open and starts no threads.
"""

import functools
import threading
import time
from collections.abc import Callable, Mapping
from os import environ
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from kube.errors import ConfigError, Unauthorized, Unreachable, read_error
from kube.stream import Stream, read_all, unreachable_if_broken

CONNECT_S: Final = 5.0  # an API server that does not accept within this is away
CONNECTIONS: Final = 64  # kept open: watches and the threads that write; more are opened on need, but not kept
DEFAULT_KUBECONFIG: Final = "~/.kube/config"
TIMEOUT_S: Final = 10.0  # of a request, unless who asks knows better
IDENTITY_S: Final = (
    1.0  # for which the credentials are not asked for again: the library takes as long for them as for a request
)

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"  # merges conditions by their type


class Client:
    """Requests to one API server, with the identity of its configuration.

    Every request raises ApiError for a refusal, Unreachable for the lack of an answer, TimedOut for the lack of one in
    time. After a 401 the credentials are read again, once, and the request is repeated, once (pain R04); the library
    re-reads a service account's token every 60 s and runs an exec plugin again before its token expires.
    """

    def __init__(self, configure: Callable[[], Configuration], user_agent: str, *, dry_run: bool = False) -> None:
        self._configure = configure
        self._user_agent = user_agent
        self._dry_run = dry_run
        self._lock = threading.Lock()
        self._configuration = configure()
        self._pool = _open_pool(self._configuration)
        self._identity: tuple[Configuration, float, Mapping[str, str]] | None = None

    @classmethod
    def load(cls, kubeconfig: str | None = None, *, user_agent: str = "apportion", dry_run: bool = False) -> Self:
        """Connect by the kubeconfig at this path, else by $KUBECONFIG or ~/.kube/config, else as a service account.

        The part of `user_agent` before a slash names the field manager of our writes. A client for a dry run changes
        nothing, whatever it is asked: the API server judges its writes (admission, preconditions, budgets) and answers
        as if it had carried them out. Raises ConfigError.
        """
        return cls(functools.partial(_read_configuration, kubeconfig), user_agent, dry_run=dry_run)

    @property
    def server(self) -> str:
        """Where the API server is, as a URL."""
        return str(self._configuration.host)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        """Return the body of a successful answer; `timeout_s` bounds the whole exchange, however slowly it drips."""
        started = time.monotonic()
        timeout = urllib3.Timeout(connect=min(CONNECT_S, timeout_s), read=timeout_s)
        response = self._open(method, path, query=query, timeout=timeout, body=body, content_type=content_type)
        return read_all(response, path, started + timeout_s)

    def get(self, path: str, **query: str) -> bytes:
        """Return an object or a list; keywords become the query."""
        return self.request("GET", path, query=query)

    def create(self, path: str, obj: object, *, timeout_s: float = TIMEOUT_S) -> bytes:
        """Create an object in the collection at `path`. Conflict (AlreadyExists) if there is one of that name."""
        return self.request("POST", path, body=msgspec.json.encode(obj), timeout_s=timeout_s)

    def delete(self, path: str, body: object = None) -> bytes:
        """Delete an object; `body` are DeleteOptions (preconditions, grace period), if any."""
        return self.request("DELETE", path, body=None if body is None else msgspec.json.encode(body))

    def json_patch(self, path: str, ops: object) -> bytes:
        """Apply RFC 6902 operations, all or none. Invalid if one does not fit, a failed `test` included."""
        return self.request("PATCH", path, body=msgspec.json.encode(ops), content_type=JSON_PATCH)

    def merge_patch(self, path: str, obj: object, *, timeout_s: float = TIMEOUT_S) -> bytes:
        """Merge by RFC 7386: null removes, lists are replaced whole. Conflict if it names an old resourceVersion."""
        body = msgspec.json.encode(obj)
        return self.request("PATCH", path, body=body, content_type=MERGE_PATCH, timeout_s=timeout_s)

    def strategic_patch(self, path: str, obj: object, *, timeout_s: float = TIMEOUT_S) -> bytes:
        """Merge as the API's types say: of lists with a key (conditions: their type) the items that are named."""
        body = msgspec.json.encode(obj)
        return self.request("PATCH", path, body=body, content_type=STRATEGIC_PATCH, timeout_s=timeout_s)

    def watch(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> Stream:
        """Open a watch; `query` is sent as it is, with `watch=1`. A silence of `read_timeout_s` breaks it."""
        timeout = urllib3.Timeout(connect=CONNECT_S, read=read_timeout_s)
        return Stream(self._open("GET", path, query={**query, "watch": "1"}, timeout=timeout))

    def close(self) -> None:
        """Close the connections that are idle; those in use close when they end."""
        self._pool.clear()

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        timeout: urllib3.Timeout,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> urllib3.BaseHTTPResponse:
        if self._dry_run and method != "GET":
            query = {**(query or {}), "dryRun": "All"}
        target = f"{path}?{urlencode(query)}" if query else path
        for last in (False, True):
            configuration, pool = self._configuration, self._pool
            headers = {"Accept": JSON, "User-Agent": self._user_agent, "Content-Type": content_type}
            headers |= self._authorization(configuration)
            with unreachable_if_broken():
                response = pool.request(
                    method,
                    f"{configuration.host}{target}",
                    body=body,
                    headers=headers,
                    timeout=timeout,
                    retries=False,  # who asks decides whether and when to ask again
                    redirect=False,
                    preload_content=False,
                )
            if response.status < 300:
                return response
            with unreachable_if_broken():
                refusal = read_error(response.status, response.data, response.headers.get("Retry-After"))
            if last or not isinstance(refusal, Unauthorized):
                raise refusal
            self._renew(configuration)
        raise AssertionError("unreachable")

    def _authorization(self, configuration: Configuration) -> Mapping[str, str]:
        now = time.monotonic()
        if (known := self._identity) and known[0] is configuration and now < known[1]:
            return known[2]
        header = _authorization(configuration)
        self._identity = configuration, now + IDENTITY_S, header
        return header

    def _renew(self, refused: Configuration) -> None:
        """Read the credentials again, unless another thread has done so since `refused` was in use."""
        with self._lock:
            if self._configuration is not refused:
                return
            try:
                fresh = self._configure()
            except ConfigError as error:
                raise Unreachable(f"credentials refused, and not readable again: {error}", maybe_done=False) from error
            if _endpoint(fresh) != _endpoint(refused):
                self._pool = _open_pool(fresh)
            self._configuration = fresh


def _read_configuration(kubeconfig: str | None) -> Configuration:
    configuration = Configuration()
    path = kubeconfig or environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    found = any(Path(part).expanduser().is_file() for part in path.split(":") if part)
    try:
        if found:
            load_kube_config(path, client_configuration=configuration, persist_config=False)
        elif kubeconfig is None and "KUBERNETES_SERVICE_HOST" in environ:
            load_incluster_config(client_configuration=configuration)
        else:
            raise ConfigError(
                f"no kubeconfig at {path} and not in a cluster: name one with --kubeconfig or $KUBECONFIG"
                if kubeconfig is None
                else f"no kubeconfig at {path}: no such file"
            )
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigError(f"kubeconfig {path}: {error}" if found else f"service account: {error}") from error
    return configuration


def _open_pool(configuration: Configuration) -> urllib3.PoolManager:
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.keep_alive = True  # TCP keepalive, so that the kernel notices a peer that is gone
    pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
    return pool


def _endpoint(configuration: Configuration) -> tuple[object, ...]:
    return (configuration.host, configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)


def _authorization(configuration: Configuration) -> dict[str, str]:
    """Return the header that identifies us; none with a client certificate. The library may re-read a file here."""
    try:
        token = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    except (ConfigException, OSError) as error:
        raise Unreachable(f"credentials not readable: {error}", maybe_done=False) from error
    return {"Authorization": token} if token else {}
