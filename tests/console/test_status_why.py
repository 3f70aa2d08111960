"""`apportion status` and `apportion why`, against a scripted API server that lists a cluster."""

import json

import pytest
from click.testing import CliRunner

from console.cli import main
from tests.apiserver.steps import listing
from tests.builders import raw_node, raw_pod

GPU = "nvidia.com/gpu"
PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "elastic": "/apis/nos.nebuly.com/v1alpha1/elasticquotas",
    "composite": "/apis/nos.nebuly.com/v1alpha1/compositeelasticquotas",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
    "policies": "/apis/nos.nebuly.com/v1alpha1/gpupolicies",
}


def quota(namespace, **spec):
    meta = {"name": "q", "namespace": namespace, "uid": namespace, "resourceVersion": "1", "generation": 1}
    return {"metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}


def pod(key, second, **fields):
    return raw_pod(key, limits={GPU: "1"}, created=f"2026-01-01T00:00:0{second}Z", **fields)


NODE = raw_node("n1", mode=None, resources={GPU: "3"})
LENT = [quota("lender", min={GPU: 2}), quota("borrower", min={GPU: 1}, max={GPU: 3})]
RUNNING = [
    pod(f"borrower/p{index}", index, node="n1", phase="Running", labels={"nos.nebuly.com/capacity": capacity})
    for index, capacity in enumerate(["in-quota", "over-quota", "over-quota"])
]
CLAIM = pod("lender/claims", 9, gates=["nos.nebuly.com/admission"])
MORE = pod("borrower/more", 9, gates=["nos.nebuly.com/admission"])


@pytest.fixture
def run(server, tmp_path):
    def run(*arguments, **objects):
        for name, path in PATHS.items():
            server.route("GET", path, listing(objects.get(name, []), 5))
        return CliRunner().invoke(main, [*arguments, "--kubeconfig", server.kubeconfig(tmp_path)])

    return run


def test_status_names_nodes_that_cannot_be_cut(run):
    """A14: by what their agents say, or do not say."""
    annotations = {
        "nos.nebuly.com/gpu-inventory": '[{"index": 0, "uuid": "GPU-7c1f", "model": "Tesla-T4", "memoryMiB": 15360, "fault": "XID error 79"}]'
    }
    order = {"nos.nebuly.com/spec-placements": '{"0": []}', "nos.nebuly.com/spec-partitioning-plan": "1000000"}
    nodes = [
        raw_node("n1", "Tesla-T4", mode="mps", annotations=annotations),
        raw_node("n2", agent=("NoBoards", "open NVML: Library Not Found")),
        raw_node("n3", annotations=order),
        raw_node("n4", mode="mgi"),
        raw_node("n5"),
    ]
    done = run("status", nodes=nodes)
    assert done.exit_code == 1
    assert done.stdout.rstrip().split("\n\n")[-1].splitlines() == [
        "node n1: GPU 0: XID error 79",
        "the agent of node n2 can do nothing: open NVML: Library Not Found",
        "the agent of node n3 has not answered an order of 1970-01-01T00:16:40Z",
        "node n4: label nos.nebuly.com/gpu-partitioning: 'mgi' is no mode; write one of mig, mps, timeslicing",
    ]


def test_status_takes_fixed_boards_and_turns_for_no_problem(run):
    inventory = (
        '[{"index": 0, "uuid": "GPU-7c1f", "model": "Tesla-T4", "memoryMiB": 15360, "mode": "mps", "fixed": true}]'
    )
    nodes = [
        raw_node("n1", "Tesla-T4", mode="mps", annotations={"nos.nebuly.com/gpu-inventory": inventory}),
        raw_node("n2", "Tesla-T4", mode="timeslicing"),
    ]
    done = run("status", nodes=nodes)
    assert (done.exit_code, [line.split("|")[0].split() for line in done.stdout.splitlines() if line.startswith("n")]) == (
        0, [["n1", "0", "mps", "fixed"], ["n2", "0", "timeslicing"]]
    )  # fmt: skip


def test_status_shows_who_borrows_from_whom_and_who_waits(run):
    done = run("status", nodes=[NODE], elastic=LENT, pods=[*RUNNING, MORE])
    assert done.exit_code == 0
    table, loan, waiting = done.stdout.rstrip().split("\n\n")
    assert table.splitlines() == [
        "QUOTA             USED  MIN  MAX  BORROWED  LENT",
        "borrower/q governs borrower",
        "  nvidia.com/gpu     3    1    3         2     -",
        "lender/q governs lender",
        "  nvidia.com/gpu     0    2    -         -     2",
    ]
    assert loan == "borrower/q borrows 2 nvidia.com/gpu from lender/q"
    assert waiting.startswith("borrower/more waits (AboveMax): ")


def test_status_as_data(run):
    done = run("status", "-o", "json", nodes=[NODE], elastic=LENT, pods=RUNNING)
    data = json.loads(done.stdout)
    assert data["quotas"]["borrower/q"]["used"] == {GPU: "3"}
    assert data["loans"] == [{"resource": GPU, "borrower": "borrower/q", "lender": "lender/q", "amount": "2"}]
    assert data["problems"] == []


def test_status_finds_what_is_wrong_with_quotas(run):
    """Q34, Q37, Q26: exit status 1, and every fault by its object; the others are shown all the same."""
    bad = quota("bad", min={GPU: 4}, max={GPU: 1})
    done = run("status", nodes=[NODE], elastic=[bad, *LENT, quota("x", min={GPU: 1})])
    assert done.exit_code == 1
    assert done.stdout.rstrip().split("\n\n")[-1].splitlines() == [
        "ElasticQuota bad/q: Invalid: spec.min[nvidia.com/gpu]: 4: is more than spec.max[nvidia.com/gpu], 1: lower it, or raise that",
        "the mins of all quotas add up to 4 nvidia.com/gpu, the nodes have 3: "
        "not every quota can have its min at the same time",
    ]
    assert "borrower/q" in done.stdout


def test_why_shows_the_arithmetic_and_who_goes(run):
    """Q28: the reclaim limit is printed."""
    done = run("why", "lender/claims", "-o", "json", nodes=[NODE], elastic=LENT, pods=[*RUNNING, CLAIM])
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert answer["state"] == "waits at the gate"
    assert answer["dimensions"] == [
        {
            "resource": GPU,
            "asks": "1",
            "used": "0",
            "min": "2",
            "max": None,
            "all_used": "3",
            "all_mins": "3",
            "guaranteed": "1333m",
            "verdict": "0 + 1 = 1 <= min 2; all use 3 + 1 > 3: 1 must be given back, by quotas above their min",
        }
    ]
    assert list(answer["evictions"]) == ["borrower/p2"]


def ending(victim, claimant):
    meta = {"annotations": {"nos.nebuly.com/evicted-for": claimant}, "deletionTimestamp": "2026-01-01T00:01:00Z"}
    return {**victim, "metadata": {**victim["metadata"], **meta}}


ENDING = ending(RUNNING[2], "lender/claims")


def test_why_tells_what_will_be_used_from_what_is_used(run):
    """L01: the reason counts 3 of 3, as the quotas do now; the table 2 of 3, for it looks at the time after."""
    done = run("why", "lender/claims", nodes=[NODE], elastic=LENT, pods=[*RUNNING[:2], ENDING, CLAIM])
    assert done.stdout.splitlines() == [
        "lender/claims waits at the gate",
        "  Evicting: waits until pods evicted for it have ended: borrower/p2; all quotas together use 3 nvidia.com/gpu, "
        "the pod asks for 1, and the mins of all quotas add up to 3",
        "",
        "ElasticQuota lender/q governs it, and counts, when pods on their way out have ended:",
        "  RESOURCE        ASKS  USED  MIN  MAX  ALL USE  GUARANTEED",
        "  nvidia.com/gpu     1     0    2    -   2 of 3       1.333",
        "  nvidia.com/gpu: 0 + 1 = 1 <= min 2; all use 2 + 1 <= 3: granted by quota",
        "",
        "On its way out for it: borrower/p2",
    ]


def test_status_says_whose_quota_counts_a_pod_that_ends(run):
    """Else lender/q uses a GPU that none of its pods has."""
    lender = pod("lender/claims", 9)
    paragraphs = run("status", nodes=[NODE], elastic=LENT, pods=[*RUNNING[:2], ENDING, CLAIM]).stdout.split("\n\n")
    assert "  nvidia.com/gpu     1    2    -         -     1" in paragraphs[0]
    assert "borrower/p2 ends, for lender/claims, whose quota counts it" in paragraphs
    paragraphs = run("status", nodes=[NODE], elastic=LENT, pods=[*RUNNING[:2], ENDING, lender]).stdout.split("\n\n")
    assert "borrower/p2 ends, for lender/claims" in [each.rstrip() for each in paragraphs]


def figures(done):
    (row,) = json.loads(done.stdout)["dimensions"]
    return row["used"], row["all_used"], row["guaranteed"]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([CLAIM], ("0", "2", "1333m"), id="waits"),
        pytest.param([pod("lender/claims", 9, node="n1", phase="Running")], ("0", "2", "1333m"), id="runs"),
        pytest.param(
            [ending(pod("lender/claims", 9, node="n1", phase="Running"), "lender/gone")],
            ("0", "2", "1333m"),
            id="ends for nobody",
        ),
    ],
)
def test_why_works_out_all_figures_without_the_pod(run, pods, expected):
    """Of min 2 nothing is used: 2/3 x 2 are guaranteed to its quota, whether the pod waits or has come."""
    done = run("why", "lender/claims", "-o", "json", nodes=[NODE], elastic=LENT, pods=[*RUNNING[:2], *pods])
    assert figures(done) == expected


MIXED = quota("mixed", min={GPU: "1.3", "memory": "100Gi", "nos.nebuly.com/gpu-memory": 40}, max={"memory": "1Ti"})
POOL = quota("pool", min={GPU: "0.7"})
WIDE = pod(
    "mixed/wide-6d4f7c9b8d-x2x9q", 9, gates=["nos.nebuly.com/admission"], requests={GPU: "1", "memory": "1536Mi"}
)


def test_why_shows_amounts_as_people_write_them_and_fits_80_columns(run):
    """Data keeps canonical quantities."""
    objects = {"nodes": [NODE], "elastic": [MIXED, POOL], "pods": [WIDE]}
    lines = run("why", "mixed/wide-6d4f7c9b8d-x2x9q", **objects).stdout.splitlines()
    assert lines[lines.index("ElasticQuota mixed/q governs it, and counts:") + 1 :][:4] == [
        "  RESOURCE                    ASKS  USED    MIN  MAX     ALL USE  GUARANTEED",
        "  memory                     1.5Gi     0  100Gi  1Ti  0 of 100Gi       100Gi",
        "  nos.nebuly.com/gpu-memory     32     0     40    -     0 of 40          40",
        "  nvidia.com/gpu                 1     0    1.3    -      0 of 2         1.3",
    ]
    data = json.loads(run("why", "mixed/wide-6d4f7c9b8d-x2x9q", "-o", "json", **objects).stdout)
    assert [(each["asks"], each["min"], each["guaranteed"]) for each in data["dimensions"]] == [
        ("1536Mi", "100Gi", "100Gi"),
        ("32", "40", "40"),
        ("1", "1300m", "1300m"),
    ]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("arguments", [["status"], ["why", "borrower/more"]], ids=["status", "why"])
def test_no_line_is_wider_than_the_terminal(run, monkeypatch, width, arguments):
    for module in ("status", "why"):
        monkeypatch.setattr(f"console.{module}.terminal_width", lambda: width)
    wide = quota("pool", namespaces=[f"namespace-number-{number}" for number in range(12)], min={GPU: "0.125"})
    board = raw_node("gpu-pool-7b9f-x2x9q", placements={"0": []})
    done = run(*arguments, nodes=[NODE, board], elastic=LENT, composite=[wide], pods=[*RUNNING, MORE])
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= width


def test_why_says_what_would_have_to_happen_above_max(run):
    done = run("why", "more", "-n", "borrower", nodes=[NODE], elastic=LENT, pods=[*RUNNING, MORE])
    assert "3 + 1 = 4 > max 3: pods of borrower/q with 1 must end first" in done.stdout


def test_why_says_that_a_policy_only_labels(run):
    policy = {"metadata": {"name": "p", "namespace": "borrower"}, "spec": {"quota": {"admission": "label"}}}
    done = run("why", "borrower/more", nodes=[NODE], elastic=LENT, pods=[*RUNNING, MORE], policies=[policy])
    assert done.stdout.startswith("borrower/more is let through the gate now")
    assert "nvidia.com/gpu: 3 + 1: counted and labelled only, as the policy says" in done.stdout


@pytest.mark.parametrize(
    ("space", "gpus", "verdict"),
    [
        pytest.param("borrower", 4, "4 > max 3: it can never run unless that is raised", id="max"),
        pytest.param("lender", 4, "4 > the sum of mins 3: it can never run unless that is raised", id="all mins"),
    ],
)
def test_why_says_what_can_never_run(run, space, gpus, verdict):
    vast = raw_pod(f"{space}/vast", limits={GPU: str(gpus)}, gates=["nos.nebuly.com/admission"])
    done = run("why", f"{space}/vast", nodes=[NODE], elastic=LENT, pods=[vast])
    assert f"nvidia.com/gpu: {verdict}" in done.stdout


def test_why_knows_pods_that_run_on_what_is_borrowed(run):
    done = run("why", "borrower/p2", nodes=[NODE], elastic=LENT, pods=RUNNING)
    assert done.stdout.startswith("borrower/p2 runs on n1 on what is borrowed, so it may be evicted")


MIG = "nvidia.com/mig-3g.20gb"
HELD = {"profile": "3g.20gb", "start": 4, "used": True, "pod": "a/runs"}


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        pytest.param(
            "a/runs",
            ["a/runs runs on n1", f"  asks for 1 {MIG}; held on n1 (GPU 0: 3g.20gb at 4)"],
            id="runs",
        ),
        pytest.param(
            "a/waits",
            [
                "a/waits waits at the gate",
                "  SliceBeingCut: needs 3g.20gb; node n1 is being cut for it",
                f"  asks for 1 {MIG}; planned on n1 (GPU 0: 3g.20gb at 0)",
            ],
            id="planned",
        ),
    ],
)
def test_why_says_where_a_pod_has_its_slices_or_will_have_them(run, key, lines):
    """L01: no quota governs it, and there is something to say all the same."""
    node = raw_node("n1", placements={"0": [HELD]}, resources={MIG: "1"})
    holder = raw_pod("a/runs", limits={MIG: "1"}, node="n1", phase="Running")
    waiting = raw_pod("a/waits", limits={MIG: "1"}, gates=["nos.nebuly.com/admission"])
    assert run("why", key, nodes=[node], pods=[holder, waiting]).stdout.splitlines() == lines


def test_a_pod_that_is_not_there_is_a_problem(run):
    done = run("why", "lender/nobody", nodes=[NODE])
    assert done.exit_code == 1
    assert "lender/nobody: no such pod" in done.stderr


def test_a_cluster_without_the_kinds_of_quotas_is_shown_without_them(server, tmp_path):
    for kind in ("pods", "nodes", "budgets"):
        server.route("GET", PATHS[kind], listing([], 5))
    done = CliRunner().invoke(main, ["status", "--kubeconfig", server.kubeconfig(tmp_path)])
    assert (done.exit_code, done.stdout) == (0, "no quotas, no boards of ours, and nobody waits\n")


@pytest.mark.parametrize("arguments", [("status",), ("why", "lender/nobody")], ids=lambda arguments: arguments[0])
def test_a_cluster_that_is_away_is_named(run, server, arguments):
    server.down()
    try:
        done = run(*arguments)
    finally:
        server.up()
    assert done.exit_code == 2
    assert "https://127.0.0.1" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["plan"], ["explain", "-f", "-"], ["status"], ["status", "--watch"], ["why", "lender/nobody"]],
    ids=" ".join,
)
def test_without_a_kubeconfig_a_verb_that_asks_a_cluster_ends_with_2(tmp_path, arguments):
    """As with files that cannot be read: 1 is for problems that were found."""
    done = CliRunner().invoke(main, [*arguments, "--kubeconfig", str(tmp_path / "none")], input="")
    assert (done.exit_code, done.stdout) == (2, "")
    assert str(tmp_path / "none") in done.stderr


def test_why_quotes_the_scheduler_on_a_pod_that_it_finds_no_node_for(run, server):
    """Nothing of ours holds a whole GPU where no quota governs, so that only the scheduler knows."""
    message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    stuck = pod("free/stuck", 1)
    stuck["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    }
    server.route("GET", "/api/v1/namespaces/free/pods/stuck", lambda _, wire: wire.json(200, stuck))
    done = run("why", "free/stuck", nodes=[NODE], pods=[stuck])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:2] == ["free/stuck is with the scheduler", f"  the scheduler: {message}"]
