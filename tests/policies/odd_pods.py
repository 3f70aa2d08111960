"""A generator of odd pods: every shape that is valid, or that the mutating phase may see before validation.

Absent, null and empty parents, `/` and `~` in keys, fields that nobody knows, init containers and sidecars as injectors
add them, sources and volumes that we never read. `pods` is the hypothesis strategy; `crowded` and `heavy` are extremes.
"""

from hypothesis import strategies as st

from policies import names


def sometimes(strategy):
    """Absent, null, or there."""
    return st.just(...) | st.none() | strategy


def thing(**fields):
    """An object some of whose fields are absent."""
    return st.fixed_dictionaries(fields).map(
        lambda made: {key: value for key, value in made.items() if value is not ...}
    )


_GPUS = ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb", "nvidia.com/mig-9g.9gb",
         "nvidia.com/gpu.shared", "cpu", "example.com/a~b")  # fmt: skip
_amounts = st.dictionaries(
    st.sampled_from(_GPUS), st.sampled_from(["1", "500m", "250m", "2", "0", "142857143n"]), max_size=1
)
_same = _amounts.map(lambda amounts: {"limits": dict(amounts), "requests": dict(amounts)})
_resources = (
    st.just({})
    | _same
    | _same
    | thing(limits=sometimes(_amounts), requests=sometimes(_amounts), claims=sometimes(st.just([])))
)
_context = thing(
    runAsUser=sometimes(st.sampled_from([0, 1000, 2000])),
    privileged=st.sampled_from([..., None, False, False, True]),
    seccompProfile=sometimes(st.just({"a": 1})),
)
_env = st.lists(
    st.sampled_from(
        [
            {"name": "A", "value": "b"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "KEY",
                "value": None,
                "valueFrom": {"secretKeyRef": {"name": "a", "key": "b/c", "optional": None}},
            },
        ]
    ),
    max_size=2,
)
_mounts = st.lists(
    st.sampled_from([{"name": "v", "mountPath": "/dev/shm"}, {"name": "v", "mountPath": "/x", "subPath": "y"}]),
    max_size=1,
)


def containers(prefix, least):
    one = thing(
        image=st.just("x"), resources=sometimes(_resources), securityContext=sometimes(_context), env=sometimes(_env), volumeMounts=sometimes(_mounts),
        restartPolicy=st.sampled_from([..., "Always"]), unknownField=sometimes(st.just({"k": [1, {"n": None}]})),
    )  # fmt: skip
    return st.lists(one, min_size=least, max_size=3).map(
        lambda found: [{"name": f"{prefix}{i}", **each} for i, each in enumerate(found)]
    )


_key = st.sampled_from(
    [names.FRACTION, names.MEMORY, names.COUNT, names.MODE, names.CONTAINER, f"{names.FRACTION}.c0", f"{names.MEMORY}.i0", f"{names.FRACTION}.c1",
     "a/b~c", "kubernetes.io/role", "gpu-fraction", *names.OUR_MARKS]
)  # fmt: skip
_value = st.sampled_from(
    ["0.5", "0.25", "1/7", "10Gi", "4GB", "2", "mig", "mps,mig", "timeslicing", "c0", "i0", "nonsense", "{}"]
)
_strange = st.dictionaries(
    st.sampled_from(["a~b", "~1", "~0/~1", "/", "x.example/~", "nos.example/gpu-fraction", "ключ", "a b", "0", "-"]),
    st.sampled_from(["", "~", "/", "\u0000", "値", "null", '{"a": [1]}', " 0.5 "]),
    min_size=1,
    max_size=3,
)
_good = st.sampled_from([{names.FRACTION: "0.25"}, {names.MEMORY: "9.6Gi"}, {f"{names.FRACTION}.c0": "0.5", f"{names.MEMORY}.i0": "4GB"},
                         {names.FRACTION: "0.5", names.MODE: "mps"}])  # fmt: skip
_annotations = st.tuples(_good | _good | _good | st.dictionaries(_key, _value, max_size=3), st.just({}) | _strange).map(
    lambda both: both[0] | both[1]
)
_volumes = st.lists(
    st.sampled_from(
        [
            {"name": "v", "emptyDir": None},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "a~b/c"}}]}},
        ]
    ),
    max_size=2,
)
_proxy = {
    "name": "istio-proxy", "image": "proxy", "restartPolicy": "Always", "ports": [{"containerPort": 15090}],
    "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
    "securityContext": {"runAsUser": 1337, "capabilities": {"drop": ["ALL"]}, "privileged": False},
    "startupProbe": {"httpGet": {"path": "/healthz/ready", "port": 15021}},
    "env": [{"name": "PROXY_CONFIG", "value": "{}\n"}, {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}],
}  # fmt: skip
"""What a service mesh puts into a pod: a sidecar with restartPolicy Always, with a user, limits and probes of its own."""
_terms = st.lists(
    thing(
        matchExpressions=sometimes(
            st.lists(st.just({"key": "kubernetes.io/hostname", "operator": "Exists"}), max_size=1)
        ),
        matchFields=sometimes(
            st.lists(st.just({"key": "metadata.name", "operator": "NotIn", "values": ["zz"]}), max_size=1)
        ),
    ),
    min_size=1,
    max_size=2,
)
_affinity = thing(
    nodeAffinity=sometimes(
        thing(requiredDuringSchedulingIgnoredDuringExecution=sometimes(thing(nodeSelectorTerms=_terms)))
    ),
    podAffinity=sometimes(st.just({})),
)
pods = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": thing(
            generateName=st.just("x-"), annotations=sometimes(_annotations), finalizers=sometimes(st.just(["a/b"])),
            labels=sometimes(st.dictionaries(st.sampled_from(["app", "a.b/c~d", "nos.nebuly.com/capacity"]), st.just("in-quota"))),
            managedFields=sometimes(st.just([{"fieldsV1": {"f:metadata": {"f:annotations": {".": {}}}}}])),
        ),
        "spec": thing(
            containers=containers("c", 1), initContainers=sometimes(containers("i", 0) | containers("i", 0).map(lambda found: [_proxy, *found])),
            volumes=sometimes(_volumes), overhead=sometimes(st.just({"cpu": "250m"})), topologySpreadConstraints=sometimes(st.just([])), securityContext=sometimes(_context),
            affinity=sometimes(_affinity), hostIPC=sometimes(st.booleans()), nodeSelector=sometimes(st.just({})),
            schedulingGates=sometimes(st.lists(st.sampled_from([{"name": "other/gate"}, {"name": names.GATE}]), max_size=2, unique_by=str)),
            schedulerName=st.sampled_from([..., "nos-scheduler", "default-scheduler"]), nodeName=st.sampled_from([..., ..., ..., ..., ..., "n1"]),
            unknownField=sometimes(st.just([1, None])),
        ),
    }
)  # fmt: skip


def crowded(count=200):
    """Return a pod of so many containers, of which each asks for its own slice."""
    shares = ({"nvidia.com/gpu": "250m"}, {"nvidia.com/mig-1g.5gb": "1"}, {"cpu": "1"})
    each = [{"name": f"c{i}", "resources": {"limits": dict(shares[i % 3])}} for i in range(count)]
    return {"metadata": {"name": "crowded"}, "spec": {"containers": each}}


def heavy(bytes_=250 * 1024):
    """Return a pod with the most annotations that the API server takes (256 KiB), of which one asks."""
    notes = {f"a.example/{i}~/": "x" * 1000 for i in range(bytes_ // 1024)}
    return {
        "metadata": {"name": "heavy", "annotations": {**notes, names.FRACTION: "0.5"}},
        "spec": {"containers": [{"name": "main", "unknown": None}]},
    }
