"""Every scenario of this folder: what `simulate` and `explain` make of it agrees with what it expects."""

import json
from pathlib import Path

import pytest

from console.manifests import load
from console.reviewing import Reviewer, namespace_labels, written
from console.simulate import simulated
from console.simulation.report import report
from tests.scenarios.comparison import differences

HERE = Path(__file__).parent

SIMULATED, ADMITTED = ".expect.json", ".admitted.json"


def scenarios(suffix):
    """Return scenarios with their files of expectations."""
    found = []
    for expected in sorted(HERE.glob(f"*/*{suffix}")):
        stem = expected.name.removesuffix(suffix)
        found.append(pytest.param(expected.with_name(f"{stem}.yaml"), expected, id=f"{expected.parent.name}/{stem}"))
    return found


def read(scenario):
    with scenario.open("rb") as file:
        return load([file])


def compare(expected, got):
    assert [*differences(json.loads(expected.read_text()), json.loads(json.dumps(got)))] == []


@pytest.mark.parametrize(("scenario", "expected"), scenarios(SIMULATED))
def test_a_simulated_cluster_comes_to_what_the_scenario_says(scenario, expected):
    manifests = read(scenario)
    compare(expected, report(simulated(manifests), manifests))


@pytest.mark.parametrize(("scenario", "expected"), scenarios(ADMITTED))
def test_admission_makes_of_each_pod_what_the_scenario_says(scenario, expected):
    manifests = read(scenario)
    reviewer = Reviewer.of(written(manifests), namespace_labels(manifests))
    compare(expected, {pod.key: reviewer.review(pod).admitted for pod in manifests.pods})


def test_every_scenario_expects_something():
    silent = [
        path.stem
        for path in HERE.glob("*/*.yaml")
        if not any(path.with_name(path.stem + suffix).exists() for suffix in (SIMULATED, ADMITTED))
    ]
    assert silent == []
