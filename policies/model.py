"""The Kubernetes objects that Apportion reads, as frozen structs of only the fields it reads.

They decode straight from the API server's JSON. Unknown fields are ignored, and a field that the API may
send as null is `T | None`. Quantities stay as they are written; `policies.quantity` makes numbers of them.
"""

import msgspec

from policies.quantity import Quantity


class _Object(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What all of them share: camel case in JSON, immutable, no cycles for the garbage collector to look for."""


class OwnerReference(_Object, frozen=True):
    """Who made an object; `controller` marks the one that would make it again."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(_Object, frozen=True):
    """Metadata. In an admission review of a new pod, name and namespace may be missing (pain W05)."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class Toleration(_Object, frozen=True):
    """A toleration; an empty key with operator Exists tolerates everything."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSelectorRequirement(_Object, frozen=True):
    """One requirement on a node's labels (or fields): In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(_Object, frozen=True):
    """Requirements that must all hold; a term without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(_Object, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeAffinity(_Object, frozen=True):
    """Node affinity; only what is required binds us."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(_Object, frozen=True):
    """Affinity of a pod, of which we read what concerns nodes."""

    node_affinity: NodeAffinity | None = None


class ResourceRequirements(_Object, frozen=True):
    """Limits and requests of a container, as written."""

    limits: dict[str, Quantity] | None = None
    requests: dict[str, Quantity] | None = None


class EnvVar(_Object, frozen=True):
    """An environment variable; `value` is missing where it comes from elsewhere."""

    name: str
    value: str | None = None


class VolumeMount(_Object, frozen=True):
    """A mount of a volume in a container."""

    name: str = ""
    mount_path: str = ""


class SecurityContext(_Object, frozen=True):
    """The security context of a container or of a pod; `privileged` is a container's only."""

    run_as_user: int | None = None
    privileged: bool | None = None


class Container(_Object, frozen=True):
    """An app, init or sidecar container; a sidecar is an init container with `restartPolicy: Always`."""

    name: str
    resources: ResourceRequirements | None = None
    env: tuple[EnvVar, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    security_context: SecurityContext | None = None
    restart_policy: str | None = None


class SchedulingGate(_Object, frozen=True):
    """A gate that keeps a pod from the scheduler."""

    name: str


class PodSpec(_Object, frozen=True):
    """The specification of a pod."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] | None = None
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    overhead: dict[str, Quantity] | None = None
    resources: ResourceRequirements | None = None
    security_context: SecurityContext | None = None
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    host_users: bool | None = None
    termination_grace_period_seconds: int | None = None


class Condition(_Object, frozen=True):
    """A condition of a pod or a node."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodStatus(_Object, frozen=True):
    """The status of a pod."""

    phase: str | None = None
    conditions: tuple[Condition, ...] | None = None


class Pod(_Object, frozen=True):
    """A pod, as the API server or a file has it."""

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus | None = None


class PodTemplate(_Object, frozen=True):
    """What a workload makes pods of."""

    metadata: ObjectMeta | None = None
    spec: PodSpec | None = None


class WorkloadSpec(_Object, frozen=True):
    """Of a workload only its template."""

    template: PodTemplate | None = None


class Workload(_Object, frozen=True):
    """A Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController or Job."""

    metadata: ObjectMeta
    spec: WorkloadSpec | None = None

    @property
    def template(self) -> PodTemplate | None:
        """Return what it makes pods of."""
        return self.spec.template if self.spec else None


class JobTemplate(_Object, frozen=True):
    """What a CronJob makes Jobs of."""

    spec: WorkloadSpec | None = None


class CronJobSpec(_Object, frozen=True):
    """Of a CronJob only its template."""

    job_template: JobTemplate | None = None


class CronJob(_Object, frozen=True):
    """A CronJob, whose template lies in that of its Jobs."""

    metadata: ObjectMeta
    spec: CronJobSpec | None = None

    @property
    def template(self) -> PodTemplate | None:
        """Return what its Jobs make pods of."""
        jobs = self.spec.job_template if self.spec else None
        return jobs.spec.template if jobs and jobs.spec else None


class Taint(_Object, frozen=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(_Object, frozen=True):
    """The specification of a node."""

    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


class NodeStatus(_Object, frozen=True):
    """The status of a node."""

    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(_Object, frozen=True):
    """A node, as the API server or a file has it."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Namespace(_Object, frozen=True):
    """A namespace, of which the labels count."""

    metadata: ObjectMeta


class QuotaSpec(_Object, frozen=True):
    """What a quota owns (`min`), may use at most (`max`), and, of a composite one, in which namespaces together."""

    min: dict[str, Quantity] | None = None
    max: dict[str, Quantity] | None = None
    namespaces: tuple[str, ...] | None = None


class _Quota(_Object, frozen=True):
    metadata: ObjectMeta
    spec: QuotaSpec | None = None


class ElasticQuota(_Quota, frozen=True):
    """The quota of one namespace, its own."""


class CompositeElasticQuota(_Quota, frozen=True):
    """The quota of several namespaces together."""


class LabelSelectorRequirement(_Object, frozen=True):
    """One requirement on labels: In, NotIn, Exists, DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelector(_Object, frozen=True):
    """Requirements that must all hold; without any it matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


class BudgetSpec(_Object, frozen=True):
    """Which pods a PodDisruptionBudget covers, and how many must run or may be away: a number, or percent (`50%`)."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class BudgetStatus(_Object, frozen=True):
    """How many of its pods may be evicted now."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(_Object, frozen=True):
    """A budget of evictions (policy/v1); one without status allows none."""

    metadata: ObjectMeta
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class PriorityClass(_Object, frozen=True):
    """A named priority (scheduling.k8s.io/v1)."""

    metadata: ObjectMeta
    value: int
    global_default: bool | None = None
    preemption_policy: str | None = None


class GpuPolicy(_Object, frozen=True):
    """A policy. Its specification is read elsewhere, with all faults, for a faulty one counts too."""

    metadata: ObjectMeta
    spec: object = None
