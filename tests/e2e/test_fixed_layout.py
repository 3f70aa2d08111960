"""A node whose layout is fixed by a ConfigMap, as an administrator sets it: the agents' account may read it."""

import json

import pytest

from policies import names
from tests.sandbox.waiting import eventually

pytestmark = pytest.mark.sandbox

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: layouts, namespace: apportion-system}
data:
  config.yaml: |
    version: v1
    mig-configs:
      threes: [{devices: all, mig-enabled: true, mig-devices: {"3g.20gb": 2}}]
"""


def test_an_administrator_fixes_the_layout_of_a_node(cluster):
    cluster.kubectl("apply", "-f", "-", stdin=CONFIG)
    labels = (f"{names.MIG_PARTED_LABEL}=layouts", f"{names.MIG_CONFIG_LABEL}=threes")
    cluster.kubectl("label", "node", "a100-40-0", *labels)

    def slices():
        node = json.loads(cluster.kubectl("get", "node", "a100-40-0", "-o", "json"))
        return node["status"]["allocatable"].get("nvidia.com/mig-3g.20gb")

    eventually(lambda: slices() == "2", "the agent cuts the board as the ConfigMap says")
