"""Kubernetes objects from YAML files, as `explain` and `simulate` take them: read, checked, in the order of the files.

Nodes, namespaces, pods, quotas, policies, budgets and priority classes are decoded; objects of other kinds are kept as
they are for whoever knows them. What is wrong inside a policy is a fault of it, not of the input: it counts. Everything
else that is wrong is told at once, with file, document and path. What is written is taken as the API server would take it:
a pod without namespace is in `default`, requests default from limits, quantities are canonical text; and a node
of which no condition is written is Ready. Nothing else is changed or added.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import BinaryIO, Final, Generic, TypeVar

import click
import msgspec
import yaml

from console.submitted import Raw, as_submitted
from policies.faults import fault, misfits
from policies.model import (
    CompositeElasticQuota,
    ElasticQuota,
    GpuPolicy,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
)

T = TypeVar("T")
Quota = ElasticQuota | CompositeElasticQuota
Known = Node | Namespace | Pod | Quota | GpuPolicy | PodDisruptionBudget | PriorityClass
_Typed = TypeVar("_Typed", bound=Known)


class Manifest(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One object of the input.

    Attributes:
        source: file and document, as messages name it.
        kind: its kind.
        namespace: its namespace; empty for nodes and namespaces.
        name: its name; of a pod without one `<generateName><ordinal>`, from 0 for each namespace and generateName.
        raw: the object itself.
        value: what we read of it; of other kinds `raw` again.
    """

    source: str
    kind: str
    namespace: str
    name: str
    raw: Raw
    value: T

    @property
    def key(self) -> str:
        """Return namespace/name, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Manifests(msgspec.Struct, frozen=True, kw_only=True):
    """The whole input; each tuple in the order of the files."""

    nodes: tuple[Manifest[Node], ...] = ()
    namespaces: tuple[Manifest[Namespace], ...] = ()
    pods: tuple[Manifest[Pod], ...] = ()
    quotas: tuple[Manifest[Quota], ...] = ()
    policies: tuple[Manifest[GpuPolicy], ...] = ()
    budgets: tuple[Manifest[PodDisruptionBudget], ...] = ()
    priorities: tuple[Manifest[PriorityClass], ...] = ()
    others: tuple[Manifest[Raw], ...] = ()


class UnreadableManifests(click.ClickException):
    """Something in the input cannot be read; the message lists every fault."""

    exit_code = 2


# A click option for verbs that read manifests, and for those that can do without.
_files_option = partial(
    click.option,
    "-f",
    "--filename",
    "files",
    metavar="FILE",
    type=click.File("rb"),
    multiple=True,
    help="YAML with any number of documents; may be given again; - is standard input.",
)
files_option = _files_option(required=True)
optional_files_option = _files_option()


def load(files: Iterable[BinaryIO]) -> Manifests:
    """Return the objects of all files. Raises UnreadableManifests with every fault of every file."""
    reading = _Reading()
    for file in files:
        for source, document in _documents(file, reading.faults):
            reading.take(source, document)
    if reading.faults:
        raise UnreadableManifests("\n".join(["the input cannot be read", *reading.faults]))
    return Manifests(
        nodes=tuple(reading.nodes),
        namespaces=tuple(reading.namespaces),
        pods=tuple(reading.pods),
        quotas=tuple(reading.quotas),
        policies=tuple(reading.policies),
        budgets=tuple(reading.budgets),
        priorities=tuple(reading.priorities),
        others=tuple(reading.others),
    )


# ---------------------------------------------------------------------------------------------------------------------


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: a timestamp stays text, and no key stands twice in a mapping."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)
        self._checked: set[yaml.MappingNode] = set()

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Resolve merge keys, before which only what is written stands in the mapping."""
        if node not in self._checked:
            self._checked.add(node)
            seen: set[tuple[str, str]] = set()
            for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
                if (key.tag, key.value) in seen:
                    problem = f"{key.value}: stands twice in one mapping"
                    raise yaml.constructor.ConstructorError(problem=problem, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        super().flatten_mapping(node)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}

_LIST: Final = "List"
_WITHOUT_NAMESPACE: Final = (Node, Namespace, PriorityClass)
_OURS: Final = "nos.nebuly.com/v1alpha1"
_CORE: Final = ("Node", "Namespace", "Pod")  # kinds of v1 that are decoded
_PERCENT: Final = re.compile(r"[0-9]{1,9}%")
_LAST_YEAR: Final = 9000  # so that what follows still has a year of four digits


def _documents(file: BinaryIO, faults: list[str]) -> Iterator[tuple[str, object]]:
    """Yield the documents of a file with their sources; the items of a List one by one, empty documents not at all."""
    number, name = 0, getattr(file, "name", "standard input")
    try:
        for number, document in enumerate(yaml.load_all(file, _Loader), start=1):
            source = f"{name}, document {number}"
            if isinstance(document, dict) and isinstance(document.get("items"), list):
                kind = str(document.get("kind", "")).removesuffix(_LIST)
                for index, item in enumerate(document["items"]):
                    # Items of a PodList have no kind of their own, those of a List have.
                    typed = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
                    yield f"{source}, items[{index}]", typed | item if isinstance(item, dict) else item
            elif document is not None:
                yield source, document
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark
        place = f"line {at.line + 1}, column {at.column + 1}" if at else f"document {number + 1}"
        faults.append(f"{name}, {place}: {error.problem or error.context}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # no text at all; a number of 5000 digits; too deep
        faults.append(f"{name}, document {number + 1}: {' '.join(str(error).split())}")


class _Reading:
    """What has been read so far, and what was wrong with it."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.nodes: list[Manifest[Node]] = []
        self.namespaces: list[Manifest[Namespace]] = []
        self.pods: list[Manifest[Pod]] = []
        self.quotas: list[Manifest[Quota]] = []
        self.policies: list[Manifest[GpuPolicy]] = []
        self.budgets: list[Manifest[PodDisruptionBudget]] = []
        self.priorities: list[Manifest[PriorityClass]] = []
        self.others: list[Manifest[Raw]] = []
        self._generated: Counter[tuple[str, str]] = Counter()
        self._known: dict[tuple[str, str, str], str] = {}

    def take(self, source: str, document: object) -> None:
        """Add one object, or its faults."""
        if not isinstance(document, dict):
            self.faults.append(fault(source, document, "must be a Kubernetes object"))
            return
        kind, version = document.get("kind"), document.get("apiVersion")
        if not isinstance(kind, str) or not kind:
            self.faults.append(f"{source}: kind: missing: every object names its kind")
        elif not isinstance(version, str) or not version:
            self.faults.append(f"{source}: apiVersion: missing: every object names its version")
        elif kind in _CORE and "/" not in version and version != "v1":
            self.faults.append(fault(f"{source}: apiVersion", version, f"a {kind} is of v1"))
        else:
            self._take(kind, version, source, document)

    def _take(self, kind: str, version: str, source: str, document: Raw) -> None:
        match version, kind:
            case "v1", "Node":
                self._add(self.nodes, Node, source, _ready_unless_said(document))
            case "v1", "Namespace":
                self._add(self.namespaces, Namespace, source, document)
            case "v1", "Pod":
                faults: list[str] = []
                submitted = as_submitted(document, faults)
                self.faults += [f"{source}: {found}" for found in faults]
                self._add(self.pods, Pod, source, submitted)
            case "policy/v1", "PodDisruptionBudget":
                self._add(self.budgets, PodDisruptionBudget, source, document)
            case "scheduling.k8s.io/v1", "PriorityClass":
                self._add(self.priorities, PriorityClass, source, document)
            case _, "ElasticQuota" | "CompositeElasticQuota" if version == _OURS:
                cls = ElasticQuota if kind == "ElasticQuota" else CompositeElasticQuota
                self._add(self.quotas, cls, source, document)
            case _, "GpuPolicy" if version == _OURS:
                self._add(self.policies, GpuPolicy, source, document)
            case _:
                self._keep(kind, source, document)

    def _keep(self, kind: str, source: str, document: Raw) -> None:
        """Keep an object of a kind that is not decoded as it is."""
        meta = document.get("metadata")
        names = meta if isinstance(meta, dict) else {}
        namespace, name = str(names.get("namespace") or ""), str(names.get("name") or "")
        self.others.append(
            Manifest(source=source, kind=kind, namespace=namespace, name=name, raw=document, value=document)
        )

    def _add(self, to: list[Manifest[_Typed]], cls: type[_Typed], source: str, raw: Raw) -> None:
        try:
            value = msgspec.convert(raw, cls)
        except msgspec.ValidationError as error:
            self.faults += [f"{source}: {found}" for found in misfits(raw, cls) or [str(error)]]
            return
        self.faults += [f"{source}: {found}" for found in (*_untimely(value), *_uncounted(value))]
        meta, kind = value.metadata, cls.__name__
        namespace = "" if isinstance(value, _WITHOUT_NAMESPACE) else meta.namespace or "default"
        name = meta.name or ""
        if not name and isinstance(value, Pod) and meta.generate_name:
            name = f"{meta.generate_name}{self._generated[namespace, meta.generate_name]}"
            self._generated[namespace, meta.generate_name] += 1
        if not name:
            self.faults.append(f"{source}: metadata.name: missing: a {kind} needs a name")
        elif (earlier := self._known.setdefault((kind, namespace, name), source)) != source:
            self.faults.append(fault(f"{source}: metadata.name", name, f"stands already in {earlier}"))
        to.append(Manifest(source=source, kind=kind, namespace=namespace, name=name, raw=raw, value=value))


def _ready_unless_said(node: Raw) -> Raw:
    """Return a node that is Ready if no condition of it is written: by hand nobody writes one."""
    status = {} if node.get("status") is None else node["status"]
    if not isinstance(status, dict) or status.get("conditions") not in (None, []):
        return node
    return {**node, "status": {**status, "conditions": [{"type": "Ready", "status": "True"}]}}


def _untimely(value: Known) -> Iterator[str]:
    """Yield what is wrong with the times of an object: each is a day and a time with its offset (RFC 3339)."""
    meta = value.metadata
    times = {
        "metadata.creationTimestamp": meta.creation_timestamp,
        "metadata.deletionTimestamp": meta.deletion_timestamp,
    }
    if isinstance(value, Node | Pod) and value.status is not None:
        times |= {
            f"status.conditions[{index}].lastTransitionTime": condition.last_transition_time
            for index, condition in enumerate(value.status.conditions or ())
        }
    for path, text in times.items():
        if text and not _is_time(text):
            yield fault(path, text, "write a time such as 2026-01-31T12:00:00Z")


def _uncounted(value: Known) -> Iterator[str]:
    """Yield what is wrong with the numbers of pods of a budget."""
    spec = value.spec if isinstance(value, PodDisruptionBudget) else None
    if spec is not None:
        for field, count in (("minAvailable", spec.min_available), ("maxUnavailable", spec.max_unavailable)):
            if count is not None and not (_PERCENT.fullmatch(count) if isinstance(count, str) else count >= 0):
                yield fault(f"spec.{field}", count, "write a number of pods such as 1, or percent such as 50%")


def _is_time(text: str) -> bool:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return False
    return read.tzinfo is not None and read.year <= _LAST_YEAR
