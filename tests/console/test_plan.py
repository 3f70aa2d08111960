"""`apportion plan` prints the decision of `settle`, from files, from a cluster, and from both together."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from console.cli import main
from tests.apiserver.steps import listing
from tests.builders import A30, A100, raw_node, raw_pod

EXAMPLES = Path(__file__).parents[2] / "examples"
GATE = "nos.nebuly.com/admission"
FREE_AND_USED = {
    "0": [{"profile": "1g.6gb", "start": 0, "used": False}, {"profile": "1g.6gb", "start": 3, "used": True}]
}
NODE = raw_node("a30-1", A30, placements=FREE_AND_USED, resources={"nvidia.com/mig-1g.6gb": "2"})
HOLDS = raw_pod("team-a/holds", node="a30-1", phase="Running", limits={"nvidia.com/mig-1g.6gb": "1"})
PATHS = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "elastic": "/apis/nos.nebuly.com/v1alpha1/elasticquotas",
    "composite": "/apis/nos.nebuly.com/v1alpha1/compositeelasticquotas",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
    "policies": "/apis/nos.nebuly.com/v1alpha1/gpupolicies",
}


def gated(key, profile, **fields):
    return raw_pod(key, limits={f"nvidia.com/mig-{profile}": "1"}, gates=[GATE], **fields)


@pytest.fixture
def run(tmp_path):
    """Run the verb on objects in a file; `-f` is left out where there are none."""

    def run(*objects, options=()):
        file = tmp_path / "objects.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        return CliRunner().invoke(main, ["plan", *(["-f", str(file)] if objects else []), *options])

    return run


@pytest.fixture
def cluster(server, tmp_path):
    """Return the option that names a cluster with these objects."""

    def cluster(**objects):
        for name, path in PATHS.items():
            server.route("GET", path, listing(objects.get(name, []), 5))
        return "--kubeconfig", server.kubeconfig(tmp_path)

    return cluster


def test_people_see_boards_before_and_after_with_what_goes_and_what_is_new(run):
    """L03: what-if. The slice in use stays where it is."""
    done = run(NODE, HOLDS, gated("team-a/wide", "2g.12gb"))
    assert done.stdout.splitlines() == [
        "POD          OUTCOME  NODE   REASON",
        "team-a/wide  planned  a30-1  needs 2g.12gb; node a30-1 is being cut for it",
        "",
        "a30-1  0 mig  |-1g.6gb        |. . . . . . . . . . . . . . . .|1g.6gb         |",
        "              |-              |                               |team-a/holds   |",
        "           -> |+2g.12gb                       |. . . . . . . .|1g.6gb         |",
        "              |team-a/wide                    |               |team-a/holds   |",
    ]
    assert done.exit_code == 0


def test_programs_get_the_same_as_data(run):
    done = run(NODE, HOLDS, gated("team-a/wide", "2g.12gb"), options=["-o", "json"])
    assert json.loads(done.stdout) == {
        "pods": {
            "team-a/wide": {
                "outcome": "planned",
                "node": "a30-1",
                "reason": "SliceBeingCut",
                "message": "needs 2g.12gb; node a30-1 is being cut for it",
            }
        },
        "nodes": {
            "a30-1": {
                "gpus": [
                    {
                        "index": 0,
                        "mode": "mig",
                        "before": [
                            {"profile": "1g.6gb", "start": 0, "used": False, "pod": None},
                            {"profile": "1g.6gb", "start": 3, "used": True, "pod": "team-a/holds"},
                        ],
                        "after": [
                            {"profile": "2g.12gb", "start": 0, "used": False, "pod": "team-a/wide"},
                            {"profile": "1g.6gb", "start": 3, "used": True, "pod": "team-a/holds"},
                        ],
                    }
                ]
            }
        },
        "problems": [],
    }
    assert yaml.safe_load(run(NODE, HOLDS, options=["-o", "yaml"]).stdout) == {"pods": {}, "nodes": {}, "problems": []}


def test_who_gets_a_free_slice_is_released_and_no_board_changes(run):
    done = run(NODE, HOLDS, gated("team-a/small", "1g.6gb"))
    assert done.stdout.splitlines() == [
        "POD           OUTCOME   NODE  REASON",
        "team-a/small  released  -",
        "",
        "no board changes",
    ]
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("pod", "line"),
    [
        pytest.param(
            gated("team-a/whole", "4g.24gb"),
            "team-a/whole  waiting  -     needs 4g.24gb; no board has 24 GB free (the freest of 1 has 18 GB)",
            id="who has no place",
        ),
        pytest.param(
            raw_pod("team-a/odd", annotations={"nos.nebuly.com/gpu-fraction": "2"}),
            "team-a/odd  denied   -     metadata.annotations[nos.nebuly.com/gpu-fraction]: 2: a share is more than 0 and at "
            "most 1, of at most 9 decimals: write for example 0.25, 250m or 1/7",
            id="who is denied",
        ),
    ],
)
def test_somebody_without_a_place_is_a_problem(run, pod, line):
    done = run(NODE, HOLDS, pod)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[1] == line


def test_an_object_that_is_not_understood_is_a_problem(run):
    done = run(raw_node("n1", "Matrox-G400", placements=None))
    assert done.exit_code == 1
    assert "Node n1: label nvidia.com/gpu.product: 'Matrox-G400' is in no table" in done.stdout


def test_evictions_are_planned_with_their_reason(run):
    """Nobody is cut for a claimant before it is known whose slice goes."""
    quotas = [
        {
            "apiVersion": "nos.nebuly.com/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "q", "namespace": space},
            "spec": {"min": {"nos.nebuly.com/gpu-memory": 6}},
        }
        for space in ("team-a", "team-b")
    ]
    placements = {"0": [{"profile": "1g.6gb", "start": start, "used": True} for start in (0, 1)]}
    node = raw_node("a30-1", A30, placements=placements, resources={"nvidia.com/mig-1g.6gb": "2"})
    held = [
        raw_pod(
            f"team-b/p{number}",
            node="a30-1",
            phase="Running",
            limits={"nvidia.com/mig-1g.6gb": "1"},
            created=f"2026-01-01T00:00:0{number}Z",
        )
        for number in range(2)
    ]
    done = run(*quotas, node, *held, gated("team-a/claims", "1g.6gb"), options=["-o", "json"])
    pods = json.loads(done.stdout)["pods"]
    assert pods["team-b/p1"]["outcome"] == "evicted"
    assert pods["team-b/p1"]["reason"] == "Reclaimed"
    assert "for team-a/claims" in pods["team-b/p1"]["message"]
    assert pods["team-b/p0"] == {"outcome": "relabelled", "node": "", "reason": "", "message": "is in-quota"}
    assert pods["team-a/claims"]["reason"] == "Evicting"


def test_an_order_that_its_agent_has_yet_to_carry_out_is_shown(run):
    """What has been withdrawn stands on the board until the leader lets it go."""
    free = {**FREE_AND_USED["0"][0], "withdrawn": True}
    order = {
        "nos.nebuly.com/spec-placements": json.dumps({"0": [{"profile": "1g.6gb", "start": 3}]}),
        "nos.nebuly.com/spec-partitioning-plan": "2",
        "nos.nebuly.com/status-partitioning-plan": "1",
    }
    placements = {"0": [free, FREE_AND_USED["0"][1]]}
    node = raw_node("a30-1", A30, placements=placements, annotations=order, resources={"nvidia.com/mig-1g.6gb": "1"})
    assert run(node, HOLDS).stdout.splitlines() == [
        "nobody to release, evict or serve",
        "",
        "a30-1  0 mig  |-1g.6gb        |. . . . . . . . . . . . . . . .|1g.6gb         |",
        "              |withdrawn      |                               |team-a/holds   |",
        "           -> |. . . . . . . . . . . . . . . . . . . . . . . .|1g.6gb         |",
        "              |                                               |team-a/holds   |",
    ]


def test_without_files_the_cluster_is_asked(run, cluster):
    done = run(options=cluster(nodes=[NODE], pods=[HOLDS, gated("team-a/wide", "2g.12gb")]))
    assert done.exit_code == 0
    assert "team-a/wide  planned  a30-1" in done.stdout
    assert "|+2g.12gb" in done.stdout


def test_pods_of_files_stand_behind_those_that_wait_in_the_cluster(run, cluster):
    """They are created now: what an older pod is about to get is not theirs."""
    waits = gated("team-a/waits", "2g.12gb", created="2026-01-01T00:00:00Z")
    done = run(
        raw_pod("team-a/late", annotations={"nos.nebuly.com/gpu-fraction": "0.5"}),
        options=[*cluster(nodes=[NODE], pods=[HOLDS, waits]), "-o", "json"],
    )
    assert {key: fate["outcome"] for key, fate in json.loads(done.stdout)["pods"].items()} == {
        "team-a/waits": "planned",
        "team-a/late": "waiting",
    }
    assert done.exit_code == 1


def test_a_cluster_that_is_away_is_named(run, cluster, server):
    options = cluster()
    server.down()
    try:
        done = run(options=options)
    finally:
        server.up()
    assert (done.exit_code, done.stdout) == (2, "")
    assert "https://127.0.0.1" in done.stderr


def test_input_that_cannot_be_read_ends_with_2(tmp_path):
    (tmp_path / "bad.yaml").write_text("kind: Pod\n  name: [")
    done = CliRunner().invoke(main, ["plan", "-f", str(tmp_path / "bad.yaml")])
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("files", [["busy"], ["cluster", "pods"], ["cluster", "quota"]], ids=lambda files: files[-1])
def test_the_plan_is_what_simulate_does_first(files):
    """One `settle` for both: boards are cut as it says."""
    options = [word for name in files for word in ("-f", str(EXAMPLES / f"{name}.yaml"))]

    def run(verb):
        return json.loads(CliRunner().invoke(main, [verb, *options, "-o", "json"]).stdout)

    planned = {
        name: "; ".join(
            f"GPU {gpu['index']}: {', '.join(item['profile'] for item in gpu['after'])}" for gpu in node["gpus"]
        )
        for name, node in run("plan")["nodes"].items()
    }
    ordered = [event for event in run("simulate")["events"] if event["what"] in {"cut", "withdrawn"}]
    assert planned == {event["object"]: event["why"] for event in reversed(ordered)}


@pytest.mark.parametrize("verb", [["plan"], ["why", "team-a/whole"], ["status"]], ids=lambda verb: verb[0])
def test_why_a_pod_waits_is_said_in_the_same_words_everywhere(cluster, verb):
    """L01: one sentence with numbers; the reconciler writes it on the pod."""
    options = cluster(nodes=[NODE], pods=[HOLDS, gated("team-a/whole", "4g.24gb")])
    said = CliRunner().invoke(main, [*verb, *options]).stdout
    assert "needs 4g.24gb; no board has 24 GB free (the freest of 1 has 18 GB)" in said


def test_a_board_that_cannot_be_read_is_told_of_and_left_alone_and_its_neighbour_is_cut(run):
    """`switch: admin`, or whatever else its agent said of it, is not for us to override by what tables say of its model."""
    profile = {"name": "7g.40gb", "id": 0, "compute": 7, "memoryUnits": 8, "memoryMiB": 40192, "starts": [0]}
    boards = [
        {"index": index, "uuid": f"GPU-{index}", "model": A100, "memoryMiB": mib, "mig": True, "profiles": [profile]}
        for index, mib in ((0, 40536), (1, 0))
    ]
    notes = {"nos.nebuly.com/gpu-inventory": json.dumps(boards)}
    node = raw_node("n1", A100, annotations=notes, placements={"0": [], "1": []})
    told = json.loads(run(node, gated("ml/a", "7g.40gb"), gated("ml/b", "7g.40gb"), options=("-o", "json")).stdout)
    assert {name: [board["index"] for board in node["gpus"]] for name, node in told["nodes"].items()} == {"n1": [0]}
    assert told["problems"] == [
        {
            "object": "Node n1",
            "message": "annotation nos.nebuly.com/gpu-inventory: board 1: memoryMiB: 0: must be from 1 to 16777216",
        }
    ]
