"""What the agent may count on of a GPU driver, the same of the simulated one and of the real one over a mock NVML.

Boards and slices are those of the simulated driver's tables, which the mock does not know; errors are compared by class.
"""

import pytest

from policies.annotations import BoardInventory
from policies.catalogue import by_product
from reconciler.agent.driver import (
    GpuIsLost,
    InsufficientResources,
    InUse,
    InvalidArgument,
    NotSupported,
    Slice,
    device_id,
)
from reconciler.agent.simulated.memory import Memory
from tests.agent.hardware import NvmlHardware, SimulatedHardware
from tests.builders import A30, A100, H100, T4
from tests.nvml.library import needs_gcc
from tests.nvml.machine import HARDWARE

GPU, OTHER = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
RTX = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


class Node:
    """The world of one driver: who holds what, and what is to happen instead of an operation."""

    def __init__(self):
        self.held, self.instead = set(), {}

    def holds(self, device):
        return device in self.held

    def interrupt(self, operation, _board, _item):
        if error := self.instead.get(operation):
            raise error


@pytest.fixture(params=["simulated", pytest.param("nvml", marks=needs_gcc)])
def make(request):
    """Return a function that makes a driver of two boards of a product, of which the first has slices."""
    hardware = SimulatedHardware if request.param == "simulated" else NvmlHardware
    with pytest.MonkeyPatch.context() as patched:
        NvmlHardware.install(patched)

        def make(*present, product=A100, mig=True, node=None, switch="admin"):
            boards = tuple(board(index, uuid, product, mig, switch) for index, uuid in enumerate((GPU, OTHER)))
            return hardware(node or Node(), Memory(boards=boards), {GPU: present}).driver()

        yield make
    NvmlHardware.leave()


def board(index, uuid, product, mig, switch):
    model = by_product(product)
    return BoardInventory(
        index=index,
        uuid=uuid,
        model=product,
        memory_mib=model.memory_mib,
        profiles=model.profiles,
        mig_capable=bool(model.profiles),
        mig=mig and bool(model.profiles),
        switch=switch,
        compute_slices=model.compute,
        memory_units=model.memory_units,
        compute_capability=HARDWARE[product][2],
    )


@pytest.mark.parametrize(
    ("product", "switch"),
    [
        pytest.param(A100, "admin", id="A100"),
        pytest.param(A30, "admin", id="A30"),
        pytest.param(H100, "live", id="H100"),
        pytest.param("NVIDIA-H100-NVL", "live", id="H100-NVL"),
        pytest.param("NVIDIA-H200", "live", id="H200"),
        pytest.param(RTX, "live", id="RTX-PRO"),
        pytest.param(T4, "admin", id="without-mig"),
    ],
)
@pytest.mark.parametrize("mig", [True, False], ids=["mig", "mig-off"])
def test_boards_are_what_the_tables_say(make, product, switch, mig):
    driver = make(product=product, mig=mig, switch=switch)
    assert driver.boards() == (board(0, GPU, product, mig, switch), board(1, OTHER, product, mig, switch))
    assert driver.slices(GPU) == driver.orphans(GPU) == ()


@pytest.mark.parametrize(
    ("present", "item", "error"),
    [
        pytest.param([], Slice("3g.20gb", 2), InvalidArgument, id="no-such-start"),
        pytest.param([], Slice("7g.79gb", 0), InvalidArgument, id="no-such-profile"),
        pytest.param(
            [Slice("3g.20gb", 0)], Slice("2g.10gb", 2), InsufficientResources, id="P18-3g-at-0-takes-four-units"
        ),
        pytest.param([Slice("1g.5gb+me", 0)], Slice("1g.5gb+me", 1), InsufficientResources, id="one-media-engine"),
        pytest.param(
            [Slice("4g.20gb", 0), Slice("3g.20gb", 4)],
            Slice("1g.5gb", 3),
            InsufficientResources,
            id="compute-is-used-up",
        ),
        pytest.param([Slice("1g.5gb", 3)], Slice("1g.5gb", 3), InvalidArgument, id="twice"),
        pytest.param([], Slice("10gb"), NotSupported, id="mps-slice-in-mig-mode"),
    ],
)
def test_what_nvml_refuses_is_refused_and_changes_nothing(make, present, item, error):
    driver = make(*present)
    with pytest.raises(error):
        driver.create(GPU, item)
    assert set(driver.slices(GPU)) == set(present)
    assert driver.orphans(GPU) == ()


def test_why_there_is_no_room_is_said(make):
    driver = make(Slice("3g.20gb", 0))
    with pytest.raises(InsufficientResources, match=r"2g\.10gb at 2 overlaps 3g\.20gb at 0"):
        driver.create(GPU, Slice("2g.10gb", 2))


@pytest.mark.parametrize(
    ("product", "items"),
    [
        pytest.param(A100, [Slice("4g.20gb", 0), Slice("3g.20gb", 4)], id="P18-4g-then-3g"),
        pytest.param(A100, [Slice("3g.20gb", 4), Slice("4g.20gb", 0)], id="P18-3g-then-4g"),
        pytest.param(A100, [Slice("1g.5gb", 6), Slice("2g.10gb", 4), Slice("4g.20gb", 0)], id="P18-1g-2g-4g"),
        pytest.param(A100, [Slice("3g.20gb", 4), *(Slice("1g.5gb", n) for n in range(4))], id="3g-and-four-1g"),
        pytest.param(A100, [*(Slice("1g.10gb", n) for n in (0, 2, 4, 6))], id="four-1g-of-double-memory"),
        pytest.param(A100, [Slice("7g.40gb", 0)], id="7g"),
        pytest.param(A30, [Slice("2g.12gb+me", 2), Slice("1g.6gb", 0), Slice("1g.6gb", 1)], id="A30"),
        pytest.param(RTX, [Slice("2g.48gb+me.all", 0), Slice("1g.24gb-me", 6), Slice("1g.24gb-me", 9)], id="RTX-PRO"),
    ],
)
def test_placements_make_the_order_of_creation_indifferent(make, product, items):
    driver = make(product=product)
    for item in items:
        driver.create(GPU, item)
    assert set(driver.slices(GPU)) == set(items)
    for item in items:
        driver.destroy(GPU, item)
    assert driver.slices(GPU) == driver.orphans(GPU) == driver.slices(OTHER) == ()


@pytest.mark.parametrize(
    ("product", "bins", "fits"),
    [
        pytest.param(T4, ["10gb", "6gb"], True, id="exactly"),
        pytest.param(T4, ["10gb", "7gb"], False, id="beyond-the-board"),
        pytest.param(A100, ["20gb", "20gb"], True, id="P03-two-halves-of-a-mig-capable-board"),
    ],
)
def test_mps_slices_are_whole_gigabytes_within_the_board(make, product, bins, fits):
    driver = make(product=product, mig=False)
    driver.enable_mps(GPU)
    items = [Slice(size, None, ordinal) for ordinal, size in enumerate(bins)]
    driver.create(GPU, items[0])
    if fits:
        driver.create(GPU, items[1])
    else:
        with pytest.raises(InsufficientResources):
            driver.create(GPU, items[1])
    assert driver.slices(GPU) == tuple(items[: 2 if fits else 1])
    assert driver.slices(OTHER) == ()
    driver.destroy(GPU, items[0])
    assert items[0] not in driver.slices(GPU)


def test_mps_slices_need_a_control_daemon_which_stays_as_long_as_there_are_any(make):
    driver, item = make(product=T4), Slice("10gb")
    assert driver.mps_enabled(GPU) is False
    with pytest.raises(NotSupported, match="no MPS control daemon is kept for GPU 0"):
        driver.create(GPU, item)
    driver.enable_mps(GPU)
    driver.enable_mps(GPU)
    driver.create(GPU, item)
    assert (driver.mps_enabled(GPU), driver.mps_enabled(OTHER)) == (True, False)
    driver.disable_mps(GPU)
    assert driver.slices(GPU) == (item,)
    assert driver.mps_enabled(GPU) is False, "it is kept only for what is left"
    driver.enable_mps(GPU)
    assert driver.mps_enabled(GPU) is True
    driver.disable_mps(GPU)
    driver.destroy(GPU, item)
    assert driver.mps_enabled(GPU) is None, "it is to be ended now"
    driver.disable_mps(GPU)
    driver.disable_mps(GPU)
    assert driver.mps_enabled(GPU) is False


def test_a_board_in_mig_mode_has_no_control_daemon(make):
    with pytest.raises(NotSupported, match="MIG mode of GPU 0 is on"):
        make().enable_mps(GPU)


def test_a_mig_slice_on_a_board_whose_mode_is_off_is_not_supported(make):
    with pytest.raises(NotSupported, match="MIG mode of GPU 0 is off"):
        make(mig=False).create(GPU, Slice("3g.20gb", 0))


def test_a_slice_that_a_process_holds_is_not_destroyed_and_its_neighbour_is(make):
    """P10, A05."""
    node = Node()
    held, idle = Slice("3g.20gb", 0), Slice("3g.20gb", 4)
    driver = make(held, idle, node=node)
    node.held = {device_id(GPU, held)}
    with pytest.raises(InUse):
        driver.destroy(GPU, held)
    driver.destroy(GPU, idle)
    assert (driver.slices(GPU), driver.orphans(GPU)) == ((held,), ())


def test_a_slice_that_cannot_be_completed_is_undone(make):
    node = Node()
    driver = make(node=node)
    node.instead = {"create compute instance": NotSupported("no such compute instance")}
    with pytest.raises(NotSupported):
        driver.create(GPU, Slice("3g.20gb", 0))
    assert driver.slices(GPU) == driver.orphans(GPU) == ()


@pytest.mark.parametrize(
    ("present", "operation"),
    [
        pytest.param([], "create compute instance", id="while-making"),
        pytest.param([Slice("3g.20gb", 0)], "destroy GPU instance", id="while-removing"),
    ],
)
def test_a_process_that_dies_between_the_two_instances_leaves_an_orphan_that_takes_room(make, present, operation):
    class Died(BaseException):
        pass

    node, item = Node(), Slice("3g.20gb", 0)
    driver = make(*present, node=node)
    node.instead = {operation: Died()}
    with pytest.raises(Died):
        (driver.destroy if present else driver.create)(GPU, item)
    node.instead = {}
    assert (driver.slices(GPU), driver.orphans(GPU)) == ((), (item,))
    with pytest.raises(InsufficientResources):
        driver.create(GPU, Slice("1g.5gb", 0))
    with pytest.raises(InvalidArgument):
        driver.create(GPU, item)
    driver.destroy(GPU, item)
    assert driver.orphans(GPU) == ()


@pytest.mark.parametrize(
    ("product", "switch", "present", "error"),
    [
        pytest.param(H100, "live", [], None, id="live"),
        pytest.param(A30, "admin", [], NotSupported, id="by-reset"),
        pytest.param(T4, "admin", [], NotSupported, id="no-mig"),
        pytest.param(H100, "live", [Slice("10gb")], InUse, id="in-use"),
    ],
)
def test_mig_mode_is_switched_where_it_can_be(make, product, switch, present, error):
    driver = make(*present, product=product, mig=False, switch=switch)
    if error:
        with pytest.raises(error):
            driver.enable_mig(GPU)
    else:
        driver.enable_mig(GPU)
    assert [entry.mig for entry in driver.boards()] == [error is None, False]


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda driver: driver.slices("GPU-9"), id="slices-of-no-board"),
        pytest.param(lambda driver: driver.orphans("GPU-9"), id="orphans-of-no-board"),
        pytest.param(lambda driver: driver.create("GPU-9", Slice("1g.5gb", 0)), id="create-on-no-board"),
        pytest.param(lambda driver: driver.enable_mig("GPU-9"), id="mig-mode-of-no-board"),
        pytest.param(lambda driver: driver.mps_enabled("GPU-9"), id="whether-no-board-is-kept-for-mps"),
        pytest.param(lambda driver: driver.enable_mps("GPU-9"), id="mps-on-no-board"),
        pytest.param(lambda driver: driver.disable_mps("GPU-9"), id="no-mps-on-no-board"),
        pytest.param(lambda driver: driver.destroy(GPU, Slice("3g.20gb", 0)), id="no-such-slice"),
        pytest.param(lambda driver: driver.destroy(GPU, Slice("3g.20gb", 4)), id="another-start"),
    ],
)
def test_a_board_or_a_slice_that_is_not_there_is_an_invalid_argument(make, ask):
    driver = make(Slice("2g.10gb", 4))
    with pytest.raises(InvalidArgument):
        ask(driver)
    assert driver.slices(GPU) == (Slice("2g.10gb", 4),)


def test_one_boards_failure_is_not_anothers(make):
    node = Node()
    driver = make(Slice("3g.20gb", 0), node=node)
    node.instead = {"create GPU instance": GpuIsLost("GPU is lost")}
    with pytest.raises(GpuIsLost):
        driver.create(GPU, Slice("3g.20gb", 4))
    node.instead = {}
    driver.create(OTHER, Slice("3g.20gb", 4))
    assert (driver.slices(GPU), driver.slices(OTHER)) == ((Slice("3g.20gb", 0),), (Slice("3g.20gb", 4),))


def test_a_slice_is_named_by_what_it_is_and_only_while_it_exists(make):
    driver = make(Slice("1g.5gb", 0), Slice("1g.5gb", 6))
    first, last = (driver.device_uuid(GPU, Slice("1g.5gb", start)) for start in (0, 6))
    assert first.startswith("MIG-")
    assert first != last
    assert driver.device_uuids(GPU) == {Slice("1g.5gb", 0): first, Slice("1g.5gb", 6): last}
    driver.destroy(GPU, Slice("1g.5gb", 0))
    assert driver.device_uuid(GPU, Slice("1g.5gb", 6)) == last, "never by position (P14)"
    with pytest.raises(InvalidArgument):
        driver.device_uuid(GPU, Slice("1g.5gb", 0))


def test_an_mps_slice_is_named_by_its_board(make):
    driver = make(Slice("10gb"), mig=False)
    assert driver.device_uuid(GPU, Slice("10gb")) == GPU
    assert driver.device_uuids(GPU) == {}
