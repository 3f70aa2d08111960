"""A driver that has no events to give is told of once, and not with each pass."""

from structlog.testing import capture_logs

from tests.nvml.library import needs_gcc
from tests.nvml.test_discovery import A100

pytestmark = needs_gcc


def test_events_that_fail_are_told_of_once_until_they_come_again(machine, driver):
    made = machine(A100)
    with capture_logs() as logs:
        driver.boards()
        for _ in range(2):
            made.fail("nvmlEventSetWait_v2", 999)
            for _ in range(5):
                driver.boards()
            made.mend()
            driver.boards()
    assert [entry["event"] for entry in logs] == ["no_xid_events", "no_xid_events"]
