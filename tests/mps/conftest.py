import pytest

from tests.mps.standin import Node


@pytest.fixture
def make():
    """Return a function that makes a node."""
    nodes = []

    def make(**site):
        nodes.append(Node(**site))
        return nodes[-1]

    yield make
    for node in nodes:
        node.end()


@pytest.fixture
def node(make):
    return make()
