"""Every name that users or other programs see: labels, annotations, resources, gate, reasons.

One place for all of them, so that a name is spelt once. Names under `nos.nebuly.com/` are those of nos
where nos had them; `nvidia.com/` names are NVIDIA's device plugin's.
"""

from typing import Final

PREFIX: Final = "nos.nebuly.com/"
NVIDIA_PREFIX: Final = "nvidia.com/"

API_GROUP: Final = "nos.nebuly.com"
API_VERSION: Final = "v1alpha1"
SYSTEM_NAMESPACE: Final = "apportion-system"

# Labels.
PARTITIONING_LABEL: Final = PREFIX + "gpu-partitioning"  # on nodes: mig | mps | timeslicing
CAPACITY_LABEL: Final = PREFIX + "capacity"  # on pods: in-quota | over-quota
QUOTA_LABEL: Final = PREFIX + "quota"  # on namespaces: the quota that governs it
PRODUCT_LABEL: Final = NVIDIA_PREFIX + "gpu.product"  # GPU feature discovery
COUNT_LABEL: Final = NVIDIA_PREFIX + "gpu.count"
MEMORY_LABEL: Final = NVIDIA_PREFIX + "gpu.memory"  # MiB of one board
REPLICAS_LABEL: Final = NVIDIA_PREFIX + "gpu.replicas"
# A fixed layout: the ConfigMaps of our namespace with the files that divide a node's boards, and what in them is meant.
PLUGIN_CONFIGS_LABEL: Final = PREFIX + "device-plugin-configs"
PLUGIN_CONFIG_LABEL: Final = NVIDIA_PREFIX + "device-plugin.config"  # a key of it
MIG_PARTED_LABEL: Final = PREFIX + "mig-parted-configs"
MIG_CONFIG_LABEL: Final = NVIDIA_PREFIX + "mig.config"  # a name in it
ALL_DISABLED: Final = "all-disabled"  # what the GPU operator writes there by itself, and leaves (docs/adr/0024)
MIG_STATE_LABEL: Final = NVIDIA_PREFIX + "mig.config.state"  # NVIDIA's mig-manager has been at work
POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"
SIMULATED_LABEL: Final = "sandbox.apportion/simulated"  # on nodes that the sandbox makes: no hardware, no kubelet

# Partitioning modes of a board.
MIG: Final = "mig"
MPS: Final = "mps"
TIMESLICING: Final = "timeslicing"
MODES: Final = (MIG, MPS, TIMESLICING)

# The gate that holds a pod until its slice is there and its quota is granted.
GATE: Final = PREFIX + "admission"

# Annotations by which users ask.
FRACTION: Final = PREFIX + "gpu-fraction"
MEMORY: Final = PREFIX + "gpu-memory"  # the same key is a quota resource: GB of GPU memory
COUNT: Final = PREFIX + "gpu-count"
MODE: Final = PREFIX + "gpu-mode"
CONTAINER: Final = PREFIX + "gpu-container"
NON_PREEMPTIBLE: Final = PREFIX + "non-preemptible"

# Annotations that only we write on pods.
RECORD: Final = PREFIX + "gpu-request"
EVICTED_FOR: Final = PREFIX + "evicted-for"
RELEASED_AT: Final = PREFIX + "released-at"  # when our gate was removed: no condition of the scheduler says it
OUR_MARKS: Final = (RECORD, EVICTED_FOR, RELEASED_AT)

# Annotations of nodes. spec-* say what the leader wants, status-* what the agent has; the counting ones are those of nos.
SPEC_GPU: Final = PREFIX + "spec-gpu-"  # spec-gpu-<i>-<profile>: n
STATUS_GPU: Final = PREFIX + "status-gpu-"  # status-gpu-<i>-<profile>-free|used: n
SPEC_PLAN: Final = PREFIX + "spec-partitioning-plan"
STATUS_PLAN: Final = PREFIX + "status-partitioning-plan"
INVENTORY: Final = PREFIX + "gpu-inventory"
SPEC_PLACEMENTS: Final = PREFIX + "spec-placements"
STATUS_PLACEMENTS: Final = PREFIX + "status-placements"
SPEC_BASIS: Final = PREFIX + "spec-basis"  # the layout that a plan was made from (docs/adr/0003)
SPEC_CUT: Final = PREFIX + "spec-cut"  # the plan whose withdrawn slices may be destroyed (docs/adr/0003)

# Kinds of quotas, and the label's values.
ELASTIC_QUOTA: Final = "ElasticQuota"
COMPOSITE_QUOTA: Final = "CompositeElasticQuota"
IN_QUOTA: Final = "in-quota"
OVER_QUOTA: Final = "over-quota"

# Policies.
GPU_POLICY: Final = "GpuPolicy"
DEFAULT_POLICY: Final = "default"  # in SYSTEM_NAMESPACE: for every namespace without a policy of its own

# Resources.
GPU: Final = NVIDIA_PREFIX + "gpu"
GPU_SHARED: Final = NVIDIA_PREFIX + "gpu.shared"  # time-slicing
MIG_RESOURCE: Final = NVIDIA_PREFIX + "mig-"  # + profile, "+" spelt "."
MPS_RESOURCE: Final = NVIDIA_PREFIX + "gpu-"  # + <N>gb
GPU_MEMORY_QUOTA: Final = PREFIX + "gpu-memory"

# Schedulers.
NOS_SCHEDULER: Final = "nos-scheduler"
DEFAULT_SCHEDULER: Final = "default-scheduler"

# Environment variables of NVIDIA's runtime and of MPS.
VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
MPS_VARIABLES: Final = "CUDA_MPS_"
THREAD_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"

# Conditions and Event reasons (PascalCase, as Kubernetes has them).
ADMITTED_CONDITION: Final = PREFIX + "Admitted"  # on pods: False with a reason while they wait
PARTITIONING_CONDITION: Final = PREFIX + "Partitioning"  # on nodes: whether the agent can cut what is asked
BEING_CUT: Final = "SliceBeingCut"  # a board is being cut for the pod
NO_ROOM: Final = "NoSliceFits"  # slices of its kind exist or could, but none can be had now
NO_BOARD: Final = "NoBoardMakesSlice"  # no board that the pod may use, away or not, ever makes it
NODES_AWAY: Final = "NodesAway"  # only nodes that are cordoned or not Ready could serve it
NODES_FULL: Final = "NodesFull"  # nodes have a slice for it, but not the CPU, memory or number of pods
UNUSED: Final = "SchedulerFindsNoNode"  # a node has all that we know of the pod to need, and yet it is not bound
PROMISED: Final = "SlicesPromised"  # free slices are promised to pods that the scheduler has not bound yet
OTHERS_FIRST: Final = "CutForOthersFirst"  # it could take what others are to have, for whom a node is being cut
BOARDS_READY: Final = "BoardsReady"  # of Partitioning, True: every board can be cut
BOARD_FAILED: Final = "BoardFailed"  # False: a board cannot be cut, or an operation on it has failed
NO_BOARDS: Final = "NoBoards"  # False: the driver is not there, or the boards are of a model that nobody knows
NODE_UNREADABLE: Final = "NodeUnreadable"  # False: labels or annotations of ours that cannot be understood
ADMISSION_ERROR: Final = "UnexpectedAdmissionError"  # the kubelet's own word for a pod whose device is not there
LAYOUT_INVALID: Final = "FixedLayoutInvalid"  # False: the files that fix the node's layout have faults
LAYOUT_PENDING: Final = "FixedLayoutPending"  # False: pods hold slices that are not in the fixed layout
ANOTHER_PLUGIN: Final = "AnotherDevicePlugin"  # False: something else announces GPUs on the node
MIG_MANAGER: Final = "MigManagerIsPresent"  # False: NVIDIA's mig-manager cuts the node's boards too
STATE_NOT_KEPT: Final = "StateNotKept"  # False: the agent cannot keep on the node what must outlive it
AGENT_FAILED: Final = (
    "AgentFailed"  # False: the agent has met with what it does not understand, by its own fault or not
)
NOT_PARTITIONED: Final = "NotPartitioned"  # False: the node's label is gone, so its boards are not ours any more
AGENT_STOPPED: Final = "AgentStopped"  # False: the agent has ended, and its device plugins with it
KUBELET_DISAGREES: Final = "KubeletDisagrees"  # False: the kubelet does not answer, or not offer what is announced
FOREIGN_GATE: Final = "HeldByAnotherGate"
NOS_PRESENT: Final = "NosIsPresent"  # nos itself is in the cluster, so nothing is decided
ABOVE_MAX: Final = "AboveMax"  # with the pod its quota would use more than its max
QUOTA_USED_UP: Final = "QuotaUsedUp"  # with the pod all quotas together would use more than the sum of their mins
ABOVE_MIN: Final = "AboveMin"  # the pod may not be evicted, so it may not borrow
PLACE_HELD: Final = "PlaceHeld"  # what is free is kept for pods that stand before this one
EVICTING: Final = "Evicting"  # borrowed pods are on their way out for this one
NOTHING_TO_RECLAIM: Final = "NothingToReclaim"  # it may take back what is lent, but no eviction would help
QUOTA_INVALID: Final = "QuotaInvalid"  # the quota that governs the pod has a fault
RECLAIMED: Final = "Reclaimed"  # of an eviction: a quota takes back what is its own
PREEMPTED: Final = "Preempted"  # of an eviction: the same quota needs it for a higher priority
PLACE_LOST: Final = "PlaceLost"  # of an eviction: what the pod was let through for is gone, so it is to wait again
EVICTION_REFUSED: Final = "EvictionRefused"  # the API server does not let a victim go: a budget, mostly
DEVICE_REPLACED: Final = "DeviceReplaced"  # of an eviction: the slice that the pod holds was made anew, by a reboot
DEVICE_GONE: Final = "DeviceGone"  # the slice that a pod holds does not exist any more
MEMORY_ABOVE_SLICE: Final = "MemoryAboveSlice"  # the processes of a pod together use more of a board than its MPS slice
VICTIM_STAYS: Final = "VictimDoesNotEnd"  # an evicted pod is still there, long after its grace
READY: Final = "Ready"  # the condition of quotas and policies, and its reason when it is True
QUOTA_SUPERSEDED: Final = "Superseded"  # False: a composite quota governs the namespace
QUOTA_CONFLICT: Final = "Conflict"  # False: an older quota governs the namespace
POLICY_CONFLICT: Final = "Conflict"  # False: an older policy governs the namespace
POLICY_UNUSED: Final = "NoEffect"  # False: in our namespace, where none but the default one holds for anybody
POLICY_INVALID: Final = "Invalid"  # False: it has faults, and pods that ask for a GPU where it governs are denied
QUOTA_FAULTY: Final = "Invalid"  # False: it has faults; the pods that it would govern wait
NOT_UNDERSTOOD: Final = "NotUnderstood"  # on nodes without an agent: what they bear cannot be read


def mig_resource(profile: str) -> str:
    """Return the resource name of a MIG profile: `1g.5gb+me` is `nvidia.com/mig-1g.5gb.me`.

    Source: NVIDIA device plugin, strategy `mixed`: only `+` is replaced, a `-me` suffix stays.
    """
    return MIG_RESOURCE + profile.replace("+", ".")


def mps_resource(gigabytes: int) -> str:
    """Return the resource name of an MPS slice of so many nominal GB, as nos names it."""
    return f"{MPS_RESOURCE}{gigabytes}gb"


def key_profile(profile: str) -> str:
    """Return a profile as it is spelt in annotation keys: `1g.5gb+me` is `1g.5gb.me` (`+` is no key character)."""
    return profile.replace("+", ".")
