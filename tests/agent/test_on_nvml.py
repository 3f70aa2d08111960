"""The agent over the real driver: its passes, its laws, and the table of crashes, with NVML calls to the mock library.

These are the tests that the simulated driver passes, once more.
"""

import pytest

from tests.agent.test_agent import *  # noqa: F403
from tests.agent.test_crashes import *  # noqa: F403
from tests.agent.test_laws import *  # noqa: F403
from tests.agent.test_reboot import *  # noqa: F403
from tests.nvml.library import needs_gcc

pytestmark = [needs_gcc, pytest.mark.usefixtures("nvml")]

# What these are about is not of the driver, or is done to the simulated one.
del test_a_driver_that_claims_success_and_does_nothing_is_not_asked_for_ever  # noqa: F821
del test_a_driver_without_boards_changes_nothing_but_the_condition  # noqa: F821
del test_boards_of_a_model_that_nobody_knows_are_left_alone  # noqa: F821
del test_devices_of_a_board_that_cannot_serve_are_unhealthy  # noqa: F821
