"""The agent over the real driver: its passes, its laws, and the table of crashes, with NVML calls to the mock library.

These are the tests that the simulated driver passes, once more.
"""

import pytest

from tests.agent import test_crashes as crashes
from tests.agent.test_agent import *  # noqa: F403
from tests.agent.test_laws import *  # noqa: F403
from tests.agent.test_reboot import *  # noqa: F403
from tests.agent.world import World
from tests.nvml.library import needs_gcc

pytestmark = [needs_gcc, pytest.mark.usefixtures("nvml")]

# What these are about is not of the driver, or is done to the simulated one.
del test_a_layout_is_legal_exactly_if_no_memory_unit_is_taken_twice_and_nothing_is_exceeded  # noqa: F821
del test_a_driver_that_claims_success_and_does_nothing_is_not_asked_for_ever  # noqa: F821
del test_a_driver_without_boards_changes_nothing_but_the_condition  # noqa: F821
del test_boards_of_a_model_that_nobody_knows_are_left_alone  # noqa: F821
del test_devices_of_a_board_that_cannot_serve_are_unhealthy  # noqa: F821


# How quick the kubelet is, and what it remembers, is not of the driver.
@pytest.mark.parametrize("after", [World.restart, World.reboot], ids=["killed", "without-power"])
@pytest.mark.parametrize(("story", "layouts", "allocatable"), crashes.STORIES)
def test_wherever_the_agent_is_killed_the_end_is_the_same(story, layouts, allocatable, after):
    crashes.test_wherever_the_agent_is_killed_the_end_is_the_same(
        story, layouts, allocatable, delay_s=0.0, forgetful=True, after=after
    )
