"""Every scenario of this folder: what `simulate` and `explain` make of it agrees with what it expects."""

import json
from pathlib import Path

import pytest

from console.manifests import load
from console.reviewing import namespace_labels, review, standings, written
from console.simulate import simulated
from console.simulation.report import report
from policies.inventory import Inventory
from tests.scenarios.comparison import differences

HERE = Path(__file__).parent

POLICIES = "Admission, complete: every request form, policies per namespace, templates"

# Scenarios that a part makes pass which is not built yet. They must fail until then, so that none stays here longer.
LATER_SIMULATED = {
    "requests/bad-policy-elsewhere": POLICIES,
    "requests/limits-every-form": POLICIES,
    "requests/mps-passed-over": POLICIES,
    "requests/mps-variables": POLICIES,
    "requests/pod-security-restricted": POLICIES,
    "requests/policy-default": POLICIES,
    "requests/policy-exact": POLICIES,
    "requests/policy-first-match": POLICIES,
    "requests/policy-limits": POLICIES,
    "requests/policy-models-ahead": POLICIES,
    "requests/policy-modes": POLICIES,
    "requests/privileged-beside-slice": POLICIES,
    "requests/visible-devices": POLICIES,
}


LATER_ADMITTED = {
    "requests/mps-variables": POLICIES,
    "requests/privileged-beside-slice": POLICIES,
}

SIMULATED, ADMITTED = ".expect.json", ".admitted.json"


def scenarios(suffix, later):
    """Return scenarios with their files of expectations; those that wait for a later part are marked so."""
    found = []
    for expected in sorted(HERE.glob(f"*/*{suffix}")):
        stem = expected.name.removesuffix(suffix)
        name = f"{expected.parent.name}/{stem}"
        marks = [pytest.mark.xfail(reason=later[name], strict=True)] if name in later else []
        found.append(pytest.param(expected.with_name(f"{stem}.yaml"), expected, id=name, marks=marks))
    return found


def read(scenario):
    with scenario.open("rb") as file:
        return load([file])


def compare(expected, got):
    assert [*differences(json.loads(expected.read_text()), json.loads(json.dumps(got)))] == []


@pytest.mark.parametrize(("scenario", "expected"), scenarios(SIMULATED, LATER_SIMULATED))
def test_a_simulated_cluster_comes_to_what_the_scenario_says(scenario, expected):
    manifests = read(scenario)
    compare(expected, report(simulated(manifests), manifests))


@pytest.mark.parametrize(("scenario", "expected"), scenarios(ADMITTED, LATER_ADMITTED))
def test_admission_makes_of_each_pod_what_the_scenario_says(scenario, expected):
    manifests = read(scenario)
    view = written(manifests)
    inventory, namespaces, quotas = Inventory.of(view.nodes), namespace_labels(manifests), standings(view)
    compare(expected, {pod.key: review(pod, inventory, namespaces, quotas).admitted for pod in manifests.pods})


def test_every_scenario_expects_something():
    silent = [
        path.stem
        for path in HERE.glob("*/*.yaml")
        if not any(path.with_name(path.stem + suffix).exists() for suffix in (SIMULATED, ADMITTED))
    ]
    assert silent == []
