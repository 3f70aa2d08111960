"""What the simulated driver says, and the time that it takes; that it keeps NVML's rules is in test_driver_contract."""

import pytest

from policies.annotations import BoardInventory
from policies.catalogue import by_product
from reconciler.agent.driver import InsufficientResources, InvalidArgument, NotSupported, Slice
from reconciler.agent.simulated.driver import SimulatedDriver
from tests.builders import A100, T4

GPU = "GPU-0"


def board(product=A100, *, mig=True, switch="admin"):
    model = by_product(product)
    return BoardInventory(
        index=0,
        uuid=GPU,
        model=product,
        memory_mib=model.memory_mib,
        profiles=model.profiles,
        mig=mig and bool(model.profiles),
        switch=switch,
        compute_slices=model.compute,
        memory_units=model.memory_units,
    )


def driver(*present, **options):
    return SimulatedDriver([board(**options)], present={GPU: present})


def mig(profile, start):
    return Slice(profile, start)


@pytest.mark.parametrize(
    ("present", "item", "error"),
    [
        pytest.param([], mig("3g.20gb", 2), InvalidArgument("3g.20gb may start at 0, 4, not at 2"), id="no-such-start"),
        pytest.param([], mig("7g.79gb", 0), InvalidArgument(f"{A100} has no profile 7g.79gb"), id="no-such-profile"),
        pytest.param(
            [mig("3g.20gb", 0)],
            mig("2g.10gb", 2),
            InsufficientResources("2g.10gb at 2 overlaps 3g.20gb at 0"),
            id="P18-3g-at-0-leaves-no-room-for-two-2g",
        ),
        pytest.param(
            [mig("1g.5gb+me", 0)],
            mig("1g.5gb+me", 1),
            InsufficientResources("no more than 1 of 1g.5gb+me on one board"),
            id="one-media-engine",
        ),
        pytest.param(
            [mig("4g.20gb", 0), mig("3g.20gb", 4)],
            mig("1g.5gb", 3),
            InsufficientResources("1g.5gb at 3 needs 8 of 7 compute slices"),
            id="compute",
        ),
        pytest.param([mig("1g.5gb", 3)], mig("1g.5gb", 3), InvalidArgument("1g.5gb at 3 exists already"), id="twice"),
        pytest.param([], Slice("10gb"), NotSupported("MIG mode of GPU 0 is on"), id="mps-slice-in-mig-mode"),
    ],
)
def test_what_nvml_refuses_is_refused(present, item, error):
    with pytest.raises(type(error)) as refused:
        driver(*present).create(GPU, item)
    assert str(refused.value) == str(error)


@pytest.mark.parametrize(
    ("product", "bins", "error"),
    [
        pytest.param(T4, ["10gb", "6gb"], None, id="exactly"),
        pytest.param(T4, ["10gb", "7gb"], "7gb beside 10 GB: Tesla-T4 has 16 GB", id="beyond-the-board"),
        pytest.param(A100, ["20gb", "20gb"], None, id="P03-two-halves-of-a-mig-capable-board"),
        pytest.param("NVIDIA-A40", ["1gb"] * 48, None, id="48-clients"),
        pytest.param("Tesla-P100-PCIE-16GB", ["1gb"] * 16, None, id="16-clients-before-volta"),
    ],
)
def test_mps_slices_are_whole_gigabytes_within_the_board(product, bins, error):
    one = driver(product=product, mig=False)
    one.enable_mps(GPU)
    for ordinal, size in enumerate(bins[:-1]):
        one.create(GPU, Slice(size, None, ordinal))
    last = Slice(bins[-1], None, len(bins))
    if error is None:
        one.create(GPU, last)
        assert len(one.slices(GPU)) == len(bins)
    else:
        with pytest.raises(InsufficientResources, match=error):
            one.create(GPU, last)


def test_calls_take_the_time_that_they_are_told_to():
    slept = []
    one = SimulatedDriver([board()], call_s=0.15, sleep=slept.append)
    one.create(GPU, mig("3g.20gb", 0))
    one.destroy(GPU, mig("3g.20gb", 0))
    one.slices(GPU)
    assert slept == [0.15, 0.15]


def test_a_board_or_an_instance_that_is_not_there_is_an_invalid_argument():
    with pytest.raises(InvalidArgument, match="there is no board GPU-9"):
        driver().slices("GPU-9")
    with pytest.raises(InvalidArgument, match=r"there is no 3g\.20gb at 0"):
        driver().destroy(GPU, mig("3g.20gb", 0))
