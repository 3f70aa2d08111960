"""Fixtures that tests of the server share."""

import datetime as dt
from collections.abc import Iterator

import pytest

from certs.issue import KeyPair, issue_authority
from tests.webhook.process import Process, ask, serving


@pytest.fixture(scope="module")
def authority() -> KeyPair:
    return issue_authority(dt.datetime.now(dt.UTC))


@pytest.fixture(scope="module")
def replica(tmp_path_factory, authority) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("tls"), authority) as process:
        ask(process.connect())
        yield process
