"""Ports: free, not promised to another sandbox, and outside the range of outgoing connections."""

import random
import socket

import pytest

from console.sandbox.ports import free_ports, is_free


def test_ports_are_distinct_and_below_the_range_of_outgoing_connections() -> None:
    ports = free_ports(5, set(), random.Random(1))
    assert len(set(ports)) == 5
    assert all(20000 <= port < 32000 for port in ports)


def test_a_port_on_which_something_listens_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_port_that_another_sandbox_has_taken_is_left_alone() -> None:
    wanted = free_ports(3, set(), random.Random(2))
    assert set(free_ports(3, set(wanted), random.Random(2))).isdisjoint(wanted)


def test_too_few_ports_are_an_error() -> None:
    with pytest.raises(OSError, match="no 2 free ports from 20000 to 31999"):
        free_ports(2, set(range(20000, 31999)), random.Random(3))
