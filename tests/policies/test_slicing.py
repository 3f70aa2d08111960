"""From wishes to slices, on boards whose profiles are those of NVIDIA's documents. Figures by design 3.3 and hand."""

import pytest
from msgspec.structs import replace

from policies import names
from policies.annotations import BoardInventory, write_inventory
from policies.catalogue import by_product
from policies.constraints import constraints_of
from policies.inventory import Inventory
from policies.requests import read_requests
from policies.slicing import Wanted, choose
from policies.view import view_node
from tests.builders import A30, A100, A100_80, H100, T4, container, make_node, make_pod

H200, B200, RTX = "NVIDIA-H200", "NVIDIA-B200", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


def inventory_of(*nodes):
    return Inventory.of(view_node(node) for node in nodes)


def slicing(pod, *nodes, modes=("mig", "mps"), barred=None):
    inventory = inventory_of(*nodes)
    requests = read_requests(pod)
    assert requests.faults == ()
    wanted = [
        Wanted(wish=wish, modes=(wish.ask.mode,) if hasattr(wish.ask, "mode") else modes, barred=barred or {})
        for wish in requests.wishes
    ]
    return choose(wanted, inventory.offer(constraints_of(pod.spec)), inventory)


def chosen(pod, *nodes, **options):
    found = slicing(pod, *nodes, **options)
    assert found.faults == ()
    return [choice.resource.removeprefix("nvidia.com/") for choice in found.choices]


def share(text, **fields):
    return make_pod(annotations={names.FRACTION: text}, **fields)


def memory(text, **fields):
    return make_pod(annotations={names.MEMORY: text}, **fields)


@pytest.mark.parametrize(
    ("product", "text", "profile"),
    [
        (A100, "0.5", "3g.20gb"), (A100, "0.333", "3g.20gb"), (A100, "0.25", "1g.10gb"), (A100, "1/7", "1g.5gb"), (A100, "0.125", "1g.5gb"),
        (A100, "0.29", "2g.10gb"), (A100, "0.57", "4g.20gb"), (A100, "0.58", "7g.40gb"), (A100, "1", "7g.40gb"), (A100, "0.01", "1g.5gb"),
        (A30, "0.1", "1g.6gb"), (A30, "0.25", "1g.6gb"), (A30, "0.333", "2g.12gb"), (A30, "0.75", "4g.24gb"), (A30, "1/4", "1g.6gb"),
        (H100, "0.25", "1g.20gb"), (H100, "0.28", "2g.20gb"), (H200, "0.5", "3g.71gb"), (B200, "1/7", "1g.23gb"),
        (RTX, "0.25", "1g.24gb"), (RTX, "0.5", "2g.48gb"), (RTX, "0.51", "4g.96gb"),
    ],
)  # fmt: skip
def test_a_share_takes_the_smallest_profile_by_compute_or_memory(product, text, profile):
    assert chosen(share(text), make_node(product=product)) == [f"mig-{profile}"]


@pytest.mark.parametrize("n", range(1, 8))
def test_as_many_shares_of_one_nth_are_to_be_had_as_mig_allows(n):
    """n requests of 1/n share a board wherever MIG allows it: 3 x 1/3 and 5 or 6 of their kind it does not."""
    node = make_node()
    inventory = inventory_of(node)
    (choice,) = slicing(share(f"1/{n}"), node).choices
    offer = inventory.offer(constraints_of(share("1").spec))
    room = inventory.room(offer.up[0], offer.up[0].kinds[0], choice.resource.removeprefix("nvidia.com/mig-"))
    assert room == {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 7}[n]


@pytest.mark.parametrize(
    ("product", "text", "profile"),
    [
        (A100, "5GB", "1g.5gb"), (A100, "4864MiB", "1g.5gb"), (A100, "4865MiB", "1g.10gb"), (A100, "5Gi", "1g.10gb"), (A100, "9.6Gi", "1g.10gb"),
        (A100, "9856Mi", "1g.10gb"), (A100, "10Gi", "3g.20gb"), (A100, "10", "1g.10gb"), (A100, "40GB", "7g.40gb"), (A100, "19.5Gi", "3g.20gb"),
        (H100, "9.6Gi", "1g.10gb"), (H100, "10Gi", "1g.20gb"), (H100, "41", "7g.80gb"), (H200, "71", "3g.71gb"), (RTX, "24", "1g.24gb"),
    ],
)  # fmt: skip
def test_memory_is_compared_with_what_a_profile_really_has_or_with_its_name(product, text, profile):
    """W39, P22."""
    assert chosen(memory(text), make_node(product=product)) == [f"mig-{profile}"]


@pytest.mark.parametrize(
    ("product", "pod", "gigabytes"),
    [
        (A100, share("0.5"), 20), (A100, share("0.333"), 13), (A100, share("1/7"), 5), (A100, share("0.01"), 1), (A100, share("1"), 40),
        (A100, memory("9.5G"), 10), (A100, memory("9.8Gi"), 10), (A100, memory("10.5Gi"), 11), (A100, memory("4500Mi"), 5),
        (T4, share("0.4"), 6), (T4, memory("7.5Gi"), 8), (T4, memory("5Gi"), 6), (T4, memory("5GB"), 5), (T4, memory("15Gi"), 16),
    ],
)  # fmt: skip
def test_mps_slices_are_whole_gb_shares_rounded_down_and_memory_up(product, pod, gigabytes):
    assert chosen(pod, make_node(product=product, mode="mps")) == [f"gpu-{gigabytes}gb"]


def test_the_usable_memory_is_that_of_the_label_where_no_agent_has_reported():
    """Of 40 GB in 38000 MiB, 9.5Gi = 9728 MiB are 10.24."""
    assert chosen(memory("9.5Gi"), make_node(mode="mps", memory=38000)) == ["gpu-11gb"]


@pytest.mark.parametrize(
    ("modes", "resource"),
    [
        (("mig", "mps"), "mig-4g.24gb"),
        (("mps", "mig"), "gpu-12gb"),
        (("mps",), "gpu-12gb"),
        (("timeslicing", "mig"), "gpu.shared"),
    ],
)
def test_modes_are_tried_in_order(modes, resource):
    nodes = make_node("a", A30), make_node("b", A100, mode="mps"), make_node("c", T4, mode="timeslicing")
    assert chosen(memory("12Gi"), *nodes, modes=modes) == [resource]


def test_a_mode_that_is_barred_is_passed_over_and_said():
    found = slicing(
        share("0.25"), make_node("a", A30), make_node("b", mode="mps"), modes=("mps", "mig"), barred={"mps": ("uid",)}
    )
    assert [(choice.resource, choice.passed_over) for choice in found.choices] == [
        ("nvidia.com/mig-1g.6gb", ("mps is passed over: uid",))
    ]
    found = slicing(
        share("0.25"), make_node("a", A30), make_node("b", mode="mps"), modes=("mig", "mps"), barred={"mps": ("uid",)}
    )
    assert found.choices[0].passed_over == ()


def test_with_every_mode_barred_the_reasons_are_the_faults():
    assert slicing(share("0.25"), make_node(), modes=("mps",), barred={"mps": ("uid", "shm")}).faults == ("uid", "shm")


def test_where_no_other_mode_serves_the_reason_of_the_barred_one_is_told_too():
    found = slicing(
        memory("30GB"), make_node("a", A30), make_node("b", mode="mps"), modes=("mps", "mig"), barred={"mps": ("uid",)}
    )
    assert found.faults == (
        "uid",
        "metadata.annotations[nos.nebuly.com/gpu-memory]: 30GB: no board serves it by mig; NVIDIA-A30 makes 1g.6gb, 2g.12gb, 4g.24gb; "
        "NVIDIA-A100-SXM4-40GB makes 1gb to 40gb by MPS",
    )


def test_a_profile_that_has_no_start_is_made_by_no_board():
    small, *others = by_product(A100).profiles
    board = BoardInventory(
        index=0, uuid="GPU-0", model=A100, memory_mib=40536, profiles=(replace(small, starts=()), *others), mig=True
    )
    node = make_node(annotations=write_inventory([board]))
    assert slicing(make_pod(limits={"nvidia.com/mig-1g.5gb": "1"}), node).faults == (
        "spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]: 1: no board makes 1g.5gb; "
        "NVIDIA-A100-SXM4-40GB makes 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb",
    )


@pytest.mark.parametrize(
    ("pod", "node", "told"),
    [
        (memory("40Gi"), make_node(),
         "metadata.annotations[nos.nebuly.com/gpu-memory]: 40Gi: no board serves it by mig or mps; "
         "NVIDIA-A100-SXM4-40GB makes 1g.5gb, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb"),
        (make_pod(limits={"nvidia.com/mig-7g.79gb": "1"}), make_node(product=A100_80),
         "spec.containers[0].resources.limits[nvidia.com/mig-7g.79gb]: 1: no board makes 7g.79gb; "
         "NVIDIA-A100-SXM4-80GB calls it 7g.80gb: write nvidia.com/mig-7g.80gb; "
         "NVIDIA-A100-SXM4-80GB makes 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"),
        (make_pod(limits={"nvidia.com/gpu-64gb": "1"}), make_node(mode="mps"),
         "spec.containers[0].resources.limits[nvidia.com/gpu-64gb]: 1: no board makes 64gb; NVIDIA-A100-SXM4-40GB makes 1gb to 40gb by MPS"),
        (make_pod(limits={"nvidia.com/gpu-5gb": "1"}), make_node(product=A30),
         "spec.containers[0].resources.limits[nvidia.com/gpu-5gb]: 1: no board makes 5gb; NVIDIA-A30 makes 1g.6gb, 2g.12gb, 4g.24gb"),
        (share("0.5"), make_node(product=T4, mode="timeslicing"),
         "metadata.annotations[nos.nebuly.com/gpu-fraction]: 0.5: no board serves it by mig or mps; "
         "Tesla-T4 is time-sliced, for pods that name it: nos.nebuly.com/gpu-mode: timeslicing"),
    ],
)  # fmt: skip
def test_what_nothing_can_ever_serve_is_refused_naming_what_exists(pod, node, told):
    assert slicing(pod, node).faults == (told,)


@pytest.mark.parametrize("resource", ["mig-1g.5gb", "mig-1g.5gb.me", "mig-7g.40gb", "mig-1g.10gb"])
def test_an_explicit_slice_is_kept_if_a_board_makes_it(resource):
    (choice,) = slicing(make_pod(limits={f"nvidia.com/{resource}": "1"}), make_node()).choices
    assert (choice.resource, choice.model, choice.reason, choice.products, choice.cut) == (
        f"nvidia.com/{resource}",
        A100,
        "",
        (),
        True,
    )


def test_an_explicit_time_slice_is_kept_where_a_node_of_ours_has_it():
    pod = make_pod(limits={"nvidia.com/gpu.shared": "1"})
    (choice,) = slicing(pod, make_node(product=T4, mode="timeslicing")).choices
    assert (choice.resource, choice.model, choice.cut) == ("nvidia.com/gpu.shared", T4, False)


def test_the_model_of_an_explicit_slice_is_left_out_where_several_make_it():
    (choice,) = slicing(make_pod(limits={"nvidia.com/mig-1g.10gb": "1"}), make_node("a"), make_node("b", H100)).choices
    assert choice.model is None


def test_a_slice_that_a_node_of_ours_announces_is_kept_though_its_boards_are_unknown():
    node = make_node(product="NVIDIA-Unheard-Of", resources={"nvidia.com/mig-2g.11gb": "2"})
    (choice,) = slicing(make_pod(limits={"nvidia.com/mig-2g.11gb": "1"}), node).choices
    assert (choice.model, choice.cut) == (None, True)  # it waits at our gate, and with our reason, until one is free
    gone = make_node(product="NVIDIA-Unheard-Of", resources={"nvidia.com/mig-2g.11gb": "0"})
    assert slicing(make_pod(limits={"nvidia.com/mig-2g.11gb": "1"}), gone).faults


# Which nodes count ----------------------------------------------------------------------------------------------------

TAINT = {"key": "dedicated", "value": "research", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("away", "why"),
    [
        ({"cordoned": True}, "cordoned"),
        ({"ready": False}, "not ready"),
        ({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}, "tainted by Kubernetes"),
    ],
)
def test_boards_that_are_away_are_a_second_choice(away, why):
    near, far = make_node("a", A30), make_node("b", H100, **away)
    assert chosen(share("0.5"), near, far) == ["mig-2g.12gb"]
    assert chosen(memory("60GB"), near, far) == ["mig-7g.80gb"], why
    assert chosen(memory("30GB"), near, far, make_node("c", A100, mode="mps")) == ["gpu-30gb"], (
        "a later mode that is up comes first"
    )


def test_a_taint_that_the_pod_does_not_bear_rules_its_node_out():
    node = make_node(taints=[TAINT])
    assert slicing(share("0.5"), node).faults
    assert chosen(share("0.5", tolerations=[{"key": "dedicated", "operator": "Exists"}]), node) == ["mig-3g.20gb"]


def test_selector_and_affinity_decide_which_boards_count():
    nodes = make_node("a", A30), make_node("b", H100)
    assert chosen(share("0.5", nodeSelector={"nvidia.com/gpu.product": H100}), *nodes) == ["mig-3g.40gb"]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["a"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    assert chosen(share("0.5", affinity=affinity), *nodes) == ["mig-3g.40gb"]


# Several models -------------------------------------------------------------------------------------------------------


def test_of_several_models_the_least_real_memory_serves():
    nodes = make_node("a"), make_node("b", A30), make_node("c", H100)
    assert chosen(memory("5Gi"), *nodes) == ["mig-1g.6gb"]
    assert chosen(memory("5GB"), *nodes) == ["mig-1g.5gb"]


def used(*profiles):
    return {"0": [{"profile": profile, "start": start, "used": True} for profile, start in profiles]}


def test_what_can_be_had_now_comes_before_less_memory():
    full = make_node("a", A30, placements=used(("4g.24gb", 0)))
    assert chosen(memory("5Gi"), full, make_node("b")) == ["mig-1g.10gb"]
    assert chosen(memory("5Gi"), full, make_node("b", placements=used(("7g.40gb", 0)))) == ["mig-1g.6gb"]


def test_a_free_slice_may_be_cut_for_another():
    node = make_node("a", A30, placements={"0": [{"profile": "4g.24gb", "start": 0, "used": False}]})
    assert chosen(memory("5Gi"), node, make_node("b")) == ["mig-1g.6gb"]


@pytest.mark.parametrize(("boards", "profile"), [(1, "1g.20gb"), (3, "3g.20gb")])
def test_of_equal_memory_the_one_of_which_more_can_be_had_serves(boards, profile):
    """19Gi: 3g.20gb of an A100-40 and 1g.20gb of an A100-80 both have 19.5 GiB; a board gives two or four."""
    assert chosen(memory("19Gi"), make_node("a", count=boards), make_node("b", A100_80)) == [f"mig-{profile}"]


def test_a_count_is_had_only_if_there_are_so_many():
    pod = make_pod(annotations={names.MEMORY: "5Gi", names.COUNT: "3"})
    one_left = make_node("a", A30, placements=used(("2g.12gb", 0), ("1g.6gb", 2)))
    assert chosen(pod, one_left, make_node("b")) == ["mig-1g.10gb"]


# Names that two models share ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "resource", "products"),
    [
        (memory("9.6Gi"), "mig-1g.10gb", (A100, H100)), (memory("9.7Gi"), "mig-1g.10gb", (H100,)), (memory("39.3Gi"), "mig-3g.40gb", (H100,)),
        (memory("10GB"), "mig-1g.10gb", ()), (share("0.25"), "mig-1g.10gb", (A100,)), (make_pod(limits={"nvidia.com/mig-1g.10gb": "1"}), "mig-1g.10gb", ()),
    ],
)  # fmt: skip
def test_a_pod_is_kept_to_the_products_on_which_its_slice_is_enough(pod, resource, products):
    """P22: 1g.10gb is 9.62 GiB of an A100-40, 9.5 of an A100-80, 9.75 of an H100; a quarter of the first only."""
    (choice,) = slicing(pod, make_node("a"), make_node("b", A100_80), make_node("c", H100)).choices
    assert (choice.resource, choice.products) == (f"nvidia.com/{resource}", products)


def test_boards_that_are_away_count_too_when_a_pod_is_kept():
    (choice,) = slicing(share("0.25"), make_node("a"), make_node("b", A100_80, cordoned=True)).choices
    assert choice.products == (A100,)


def test_a_share_by_mps_is_kept_to_boards_on_which_its_gb_are_that_share():
    """4 GB are a quarter of a T4, a tenth of an A100-40; 10 GB are more than a quarter of a T4, an eighth of an H100."""
    t4, a100, h100 = make_node("t", T4, mode="mps"), make_node("a", mode="mps"), make_node("h", H100, mode="mps")
    (choice,) = slicing(share("0.25"), t4, a100, h100).choices
    assert (choice.resource, choice.products) == ("nvidia.com/gpu-4gb", (T4,))
    full = make_node("t", T4, mode="mps", placements={"0": [{"profile": "16gb", "used": True}]})
    (choice,) = slicing(share("0.25"), full, a100, h100).choices
    assert (choice.resource, choice.products) == ("nvidia.com/gpu-10gb", (A100, T4))


# Several containers ---------------------------------------------------------------------------------------------------


def test_the_slices_of_one_pod_come_from_one_kind_of_node():
    """Alone, 20Gi would go to the A30 (23.44 GiB) and 30Gi to the A100-80: no node has both."""
    pod = make_pod(
        annotations={f"{names.MEMORY}.a": "20Gi", f"{names.MEMORY}.b": "30Gi"},
        containers=[container("a"), container("b")],
    )
    nodes = make_node("a", A30), make_node("b", A100_80)
    assert chosen(pod, *nodes) == ["mig-3g.40gb", "mig-3g.40gb"]


def test_slices_that_no_one_node_makes_are_refused():
    pod = make_pod(
        containers=[
            container("a", limits={"nvidia.com/mig-1g.6gb": "1"}),
            container("b", limits={"nvidia.com/mig-1g.5gb": "1"}),
        ]
    )
    (told,) = slicing(pod, make_node("a", A30), make_node("b")).faults
    assert told.startswith(
        "spec: nvidia.com/mig-1g.6gb 1, nvidia.com/mig-1g.5gb 1: no node makes all of these; NVIDIA-A100-SXM4-40GB makes"
    )


def test_every_wish_that_nothing_serves_is_told():
    pod = make_pod(
        annotations={f"{names.MEMORY}.a": "200Gi", f"{names.MEMORY}.b": "300Gi"},
        containers=[container("a"), container("b")],
    )
    assert [text.split(": ")[1] for text in slicing(pod, make_node()).faults] == ["200Gi", "300Gi"]


# What is said ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "node", "reason"),
    [
        (make_pod(limits={"nvidia.com/gpu": "500m"}), make_node(),
         "nvidia.com/gpu 0.5 -> nvidia.com/mig-3g.20gb (3/7 compute, 19.5 GiB of NVIDIA-A100-SXM4-40GB); isolated in hardware"),
        (share("1/4"), make_node(), "nos.nebuly.com/gpu-fraction 1/4 -> nvidia.com/mig-1g.10gb (1/7 compute, 9.62 GiB of NVIDIA-A100-SXM4-40GB); isolated in hardware"),
        (memory("10GB"), make_node(mode="mps"),
         "nos.nebuly.com/gpu-memory 10GB -> nvidia.com/gpu-10gb (10 GiB of NVIDIA-A100-SXM4-40GB); memory limit per process, no fault isolation"),
        (share("0.5"), make_node(product=T4, mode="mps"),
         "nos.nebuly.com/gpu-fraction 0.5 -> nvidia.com/gpu-8gb (7.5 GiB of Tesla-T4); memory limit per process, no fault isolation"),
        (share("0.5"), make_node(product="Tesla-P100-PCIE-16GB", mode="mps"),
         "nos.nebuly.com/gpu-fraction 0.5 -> nvidia.com/gpu-8gb (8 GiB of Tesla-P100-PCIE-16GB); "
         "nothing is limited: neither memory nor compute, no fault isolation"),
    ],
)  # fmt: skip
def test_the_choice_is_said_in_one_sentence(pod, node, reason):
    (choice,) = slicing(pod, node).choices
    assert choice.reason == reason


def test_time_slicing_says_that_it_limits_nothing():
    (choice,) = slicing(share("0.25"), make_node(product=T4, mode="timeslicing"), modes=("timeslicing",)).choices
    assert choice.reason == (
        "nos.nebuly.com/gpu-fraction 0.25 -> nvidia.com/gpu.shared (turns on Tesla-T4); "
        "nothing is limited: neither memory nor compute, no fault isolation"
    )
    assert choice.cut is False


# Counts that no node could ever hold -----------------------------------------------------------------------------------


def seven(count, **fields):
    return make_pod(limits={"nvidia.com/mig-1g.5gb": str(count)}, **fields)


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        pytest.param(seven(7), [make_node()], id="all that a board makes"),
        pytest.param(seven(8), [make_node("a"), make_node("b", count=2)], id="on the larger of two nodes"),
        pytest.param(seven(7, init=[container("i", limits={"nvidia.com/mig-1g.5gb": "7"})]), [make_node()], id="an init container before"),
        pytest.param(
            make_pod(
                annotations={f"{names.FRACTION}.{name}": "0.5" for name in "abc"},
                containers=[container(name) for name in "abc"],
            ),
            [make_node(product=T4, mode="timeslicing")],
            id="turns, of which nobody knows how many there are",
        ),
        pytest.param(
            make_pod(limits={"nvidia.com/mig-9g.9gb": "100"}), [make_node(product="x", resources={"nvidia.com/mig-9g.9gb": "1"})],
            id="slices of boards that nobody knows",
        ),
    ],
)  # fmt: skip
def test_a_count_that_a_node_could_hold_is_served(pod, nodes):
    assert slicing(pod, *nodes, modes=names.MODES).faults == ()


@pytest.mark.parametrize(
    ("pod", "fault"),
    [
        pytest.param(seven(8), "spec.containers[0].resources.limits[nvidia.com/mig-1g.5gb]: 8: no node has more than 7 such slices, and "
                     "a pod runs on one node: ask for at most 7", id="explicit"),
        pytest.param(make_pod(annotations={names.FRACTION: "0.5", names.COUNT: "3"}),
                     "metadata.annotations[nos.nebuly.com/gpu-fraction]: 0.5: no node has more than 2 such slices, and a pod runs on one "
                     "node: ask for at most 2", id="shares"),
        pytest.param(make_pod(containers=[container(name, limits={"nvidia.com/gpu": "0.5"}) for name in "abc"]),
                     "spec: nvidia.com/gpu 0.5, nvidia.com/gpu 0.5, nvidia.com/gpu 0.5: all of these come to 3 of nvidia.com/mig-3g.20gb "
                     "at a time, where no node has more than 2", id="several containers"),
        pytest.param(make_pod(containers=[container("a", limits={"nvidia.com/mig-1g.5gb": "4"})],
                              init=[container("s", limits={"nvidia.com/mig-1g.5gb": "4"}, restartPolicy="Always")]),
                     "spec: nvidia.com/mig-1g.5gb 4, nvidia.com/mig-1g.5gb 4: all of these come to 8 of nvidia.com/mig-1g.5gb at a time, "
                     "where no node has more than 7", id="a sidecar and an app"),
    ],
)  # fmt: skip
def test_a_count_that_no_node_could_ever_hold_is_denied_for_it_would_wait_for_ever(pod, fault):
    assert slicing(pod, make_node("a"), make_node("b")).faults == (fault,)


def test_a_denial_names_the_selector_that_leaves_only_some_nodes():
    """The A100 of the other pool would serve it."""
    nodes = [
        make_node("n1", product=A30, labels={"pool": "a"}),
        make_node("n2", product=A100),
        make_node("n3", mode=None),
    ]
    assert slicing(memory("30GB", nodeSelector={"pool": "a"}), *nodes, modes=("mig",)).faults == (
        "metadata.annotations[nos.nebuly.com/gpu-memory]: 30GB: no board serves it by mig; NVIDIA-A30 makes 1g.6gb, 2g.12gb, "
        "4g.24gb; only 1 of 2 nodes that are labelled nos.nebuly.com/gpu-partitioning has what the pod's nodeSelector (pool=a) "
        "wants",
    )
