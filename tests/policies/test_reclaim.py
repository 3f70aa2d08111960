"""Reclaim by hand-made cases: each rule, the order of victims, and what must not happen."""

import pytest
from msgspec.structs import replace

from policies import names
from policies.settle import settle
from tests.policies.teams import NOW, budget, carried_out, machine, pod, quota, teams, victims, without


def case(*pods, quotas, nodes=None, budgets=(), **more):
    return settle(teams(nodes or [machine("n1", 64)], quotas, pods, budgets), **more)


def running(space, count, gpus=1, start=0, **fields):
    return [pod(f"{space}/{space}-{i}", gpus, node="n1", created=1000 + start + i, **fields) for i in range(count)]


def test_a_lender_gets_its_min_back_from_the_newest_borrowed_pod():
    """Q01: the sum of mins is used up, which stops borrowing but not reclaim."""
    decision = case(*running("a", 5), pod("b/claim"), quotas=[quota("a", 4), quota("b", 1)], nodes=[machine("n1", 5)])
    assert victims(decision) == ["a/a-4"]
    (evict,) = decision.evict
    assert (evict.claimant, evict.reason, evict.quota, evict.grace_s) == ("b/claim", "Reclaimed", "b/quota", 30)
    assert "b/quota takes back what a/quota borrows, for b/claim: 1 nvidia.com/gpu" in evict.message
    assert decision.ungate == ()
    assert [(item.pod, item.reason) for item in decision.waiting] == [("b/claim", names.EVICTING)]


def test_a_claimant_in_the_cluster_causes_no_second_eviction_while_its_victims_end():
    """Q20: what is on its way out counts for the claimant."""
    view = teams([machine("n1", 4)], [quota("a", 1), quota("b", 2), quota("c", 1)], [*running("a", 4), pod("b/big", 2)])
    first = settle(view)
    assert victims(first) == ["a/a-3", "a/a-2"]
    view = carried_out(view, first)
    second = settle(view)
    assert (second.evict, second.ungate) == ((), ())
    half = settle(without(view, {"a/a-3"}))
    assert (half.evict, half.ungate) == ((), ())
    assert [release.pod for release in settle(without(view, {"a/a-3", "a/a-2"})).ungate] == ["b/big"]


def test_victims_on_their_way_out_count_for_the_claimants_quota():
    view = teams([machine("n1", 5)], [quota("a", 4), quota("b", 1)], [*running("a", 5), pod("b/claim")])
    after = settle(carried_out(view, settle(view)))
    used = {status.key: status.used[names.GPU] for status in after.quotas}
    assert used == {"a/quota": 4000, "b/quota": 1000}


def test_a_comeback_waits_behind_its_claimant():
    """Q20: nothing needs to be remembered: the evicted pod is beyond its min, the claimant within its own."""
    view = teams([machine("n1", 2)], [quota("a", 1), quota("b", 1)], [*running("a", 2), pod("b/claim", created=9000)])
    view = without(carried_out(view, settle(view)), {"a/a-1"})
    again = replace(view, pods=(*view.pods, pod("a/a-1", created=9001, priority=100)))
    assert [release.pod for release in settle(again).ungate] == ["b/claim"]


@pytest.mark.parametrize(
    ("pods", "quotas", "gone"),
    [
        pytest.param(
            [*running("a", 2, priority=5), *running("c", 1, start=50, priority=9), pod("b/claim")],
            [quota("a", 0), quota("b", 3), quota("c", 0)],
            ["a/a-1"],
            id="lowest priority, then newest",
        ),
        pytest.param(
            [pod("a/small", 1, node="n1"), pod("a/large", 2, node="n1"), pod("b/claim", 2)],
            [quota("a", 0), quota("b", 3)],
            ["a/large"],
            id="of equal ones the larger",
        ),
        pytest.param(
            [pod("a/y", node="n1"), pod("a/x", node="n1"), pod("b/claim")],
            [quota("a", 0), quota("b", 2)],
            ["a/x"],
            id="then by name",
        ),
        pytest.param(
            [pod("a/big", 4, node="n1"), pod("c/one", node="n1", priority=100, created=1), pod("b/claim")],
            [quota("a", 2), quota("b", 3), quota("c", 0)],
            ["c/one"],
            id="who straddles its bound comes last",
        ),
        pytest.param(
            [pod("a/big", 5, node="n1"), pod("b/claim")],
            [quota("a", 2), quota("b", 3)],
            ["a/big"],
            id="but is not out of reach",
        ),
        pytest.param(
            [*running("a", 4), pod("b/claim", 2)],
            [quota("a", 2), quota("b", 1), quota("c", 1)],
            [],
            id="Q27: beyond min and guaranteed share nobody is displaced",
        ),
        pytest.param(
            [*running("a", 4), *running("b", 4), pod("a/claim", 1)],
            [quota("a", 4), quota("b", 1), quota("c", 3)],
            ["b/b-3"],
            id="Q28: within the guaranteed share, floor(4/8 x 3), of 13, while b is above 1 and its own",
        ),
        pytest.param(
            [*running("a", 2), pod("a/urgent", priority=10)],
            [quota("a", 2, 2)],
            ["a/a-1"],
            id="own lower priority at max",
        ),
        pytest.param(
            [*running("a", 2), pod("a/polite", priority=10, preempts=False)],
            [quota("a", 2, 2)],
            [],
            id="preemptionPolicy Never",
        ),
        pytest.param([*running("a", 2), pod("a/equal")], [quota("a", 2, 2)], [], id="Q25: equal priority displaces nobody"),
        pytest.param(
            [*running("a", 3, non_preemptible=True), pod("a/x", node="n1", created=1), pod("b/claim")],
            [quota("a", 3), quota("b", 1)],
            [],
            id="non-preemptible pods are never victims",
        ),
        pytest.param(
            [*running("a", 10), *running("b", 9), pod("a/two", 2)],
            [quota("a", 10), quota("b", 10)],
            [],
            id="Q25: one borrowed, one of its own: of equal priority nobody goes",
        ),
        pytest.param(
            [*running("a", 10), *running("b", 9), pod("a/two", 2, priority=1)],
            [quota("a", 10), quota("b", 10)],
            [],
            id="Q25: nor of lower: it would be within min on coming back, and stand before the pod that borrows",
        ),
        pytest.param(
            [*running("a", 2, refused_until=NOW + 1), pod("b/claim")],
            [quota("a", 1), quota("b", 1)],
            [],
            id="refused until later",
        ),
        pytest.param(
            [*running("a", 2, refused_until=NOW), pod("b/claim")],
            [quota("a", 1), quota("b", 1)],
            ["a/a-1"],
            id="refused until now",
        ),
    ],
)  # fmt: skip
def test_victims_stand_in_one_order(pods, quotas, gone):
    assert victims(case(*pods, quotas=quotas)) == gone


def test_budgets_are_counted_before_anybody_is_asked():
    """Q11: of two covered pods the budget lets one go, so the third is the bare one."""
    decision = case(
        *running("a", 2, start=10, labels={"app": "web"}),
        pod("a/bare", node="n1", created=1),
        pod("b/claim", 2),
        quotas=[quota("a", 0), quota("b", 3)],
        budgets=[budget("a", 1, app="web")],
    )
    assert victims(decision) == ["a/a-1", "a/bare"]


def test_a_budget_is_counted_over_all_claimants():
    decision = case(
        *running("a", 2, labels={"app": "web"}),
        pod("b/one"),
        pod("b/two", created=1001),
        quotas=[quota("a", 0), quota("b", 2)],
        budgets=[budget("a", 1, app="web")],
    )
    assert victims(decision, "b/one") == ["a/a-1"]
    assert victims(decision, "b/two") == []


def test_of_those_who_stay_only_they_are_told_of_and_not_who_goes_for_another():
    """L01: the budget is used up by a/a-1, which it covers too, and which goes for b/one."""
    decision = case(
        *running("a", 2, labels={"app": "web"}), pod("b/one"), pod("b/two", created=1001),
        quotas=[quota("a", 0), quota("b", 2)], budgets=[budget("a", 1, app="web")],
    )  # fmt: skip
    assert reasons_of(decision)["b/two"][1].endswith(
        "(of the pods that it might displace: 1 under PodDisruptionBudget a/budget that allows no more)"
    )


@pytest.mark.parametrize(
    ("pods", "quotas", "gone"),
    [
        pytest.param(
            [
                *running("a", 2),
                pod("a/polite", priority=10, preempts=False, created=int(NOW) - 2),
                pod("a/urgent", priority=10, created=int(NOW) - 1),
            ],
            [quota("a", 2, 2)],
            {"a/urgent": ["a/a-1"]},
            id="preemptionPolicy Never",
        ),
        pytest.param(
            [
                *running("a", 4),
                *running("b", 6),
                pod("a/fixed", non_preemptible=True, created=int(NOW) - 2),
                pod("a/claim", created=int(NOW) - 1),
            ],
            [quota("a", 4), quota("b", 1), quota("c", 5)],
            {"a/claim": ["b/b-5"]},
            id="non-preemptible: above min it may not run, the other within floor(4/10 x 5)",
        ),
    ],
)
def test_that_nobody_can_go_for_one_says_nothing_of_its_like_that_may_do_more(pods, quotas, gone):
    """What a search has found holds for others only where the rules let them do the same."""
    decision = case(*pods, quotas=quotas)
    assert {evict.claimant: victims(decision, evict.claimant) for evict in decision.evict} == gone


def test_who_can_be_served_at_once_elsewhere_does_not_wait_for_a_victim():
    """b/holds leaves n1 with all its CPUs; c's pod, which stands behind the claimant, finds as many free on n2."""
    decision = case(
        pod("b/holds", cpu=8, node="n1"), pod("a/claim"), pod("c/quick", 0, cpu=4, created=1001),
        quotas=[quota("a", 1), quota("b", 0), quota("c", cpu=8)], nodes=[machine("n1", 1, 8), machine("n2", 0, 8)],
    )  # fmt: skip
    assert victims(decision) == ["b/holds"]
    assert [release.pod for release in decision.ungate] == ["c/quick"]


def test_what_is_there_on_a_node_that_a_victim_leaves_is_given_away_once():
    """Both nodes have four CPUs free, and four that a victim leaves: c's two pods run at once, on one node each."""
    decision = case(
        pod("b/one", cpu=4, node="n1"), pod("b/two", cpu=4, node="n2"), pod("a/one"), pod("a/two"),
        pod("c/one", 0, cpu=4, created=1001), pod("c/two", 0, cpu=4, created=1002),
        quotas=[quota("a", 2), quota("b", 0), quota("c", cpu=8)], nodes=[machine("n1", 1, 8), machine("n2", 1, 8)],
    )  # fmt: skip
    assert sorted(victims(decision)) == ["b/one", "b/two"]
    assert [release.pod for release in decision.ungate] == ["c/one", "c/two"]


def test_a_pod_under_two_budgets_cannot_be_evicted():
    """The API server refuses it whatever they allow."""
    both = [budget("a", 9, app="web"), replace(budget("a", 9, app="web"), name="other")]
    decision = case(
        *running("a", 1, labels={"app": "web"}), pod("b/claim"), quotas=[quota("a", 0), quota("b", 1)], budgets=both
    )
    assert victims(decision) == []


def test_nobody_goes_in_vain():
    """Q15, Q17: quota could be had, but no node would have four GPUs free."""
    pods = [pod(f"b/b-{i}", node=f"n{i % 2 + 1}", created=1000 + i) for i in range(6)]
    decision = case(
        *pods,
        pod("a/big", 4),
        quotas=[quota("a", 4), quota("b", 4)],
        nodes=[machine("n1", 4), machine("n2", 4)],
    )
    assert victims(decision) == []
    (waiting,) = decision.waiting
    assert waiting.reason == names.NOTHING_TO_RECLAIM
    assert "the mins of all quotas add up to 8; no eviction that is allowed would help; 2 nodes have" in waiting.message


def test_room_is_taken_back_where_the_mins_promise_more_than_there_is():
    """Q26."""
    decision = case(
        *running("batch", 4), *running("shielded", 2), pod("a/claim", 2),
        quotas=[quota("a", 4), quota("batch", 2), quota("shielded", 4)], nodes=[machine("n1", 7)],
    )  # fmt: skip
    assert victims(decision) == ["batch/batch-3"]


def test_a_blocked_claimant_keeps_what_becomes_free():
    """Q18's fear: one GPU at a time becomes free, and small pods would take each."""
    pods = [
        *running("prod", 2), *running("web", 1, labels={"app": "web"}),
        pod("prod/big", 2, created=9990), pod("dev/small", priority=1000, created=9999),
    ]  # fmt: skip
    decision = case(
        *pods, quotas=[quota("prod", 4), quota("web", 0), quota("dev", 0)], nodes=[machine("n1", 4)],
        budgets=[budget("web", 0, app="web")],
    )  # fmt: skip
    assert (decision.ungate, decision.evict) == ((), ())


@pytest.mark.parametrize(("age", "passes"), [(299, ["a/small"]), (300, [])], ids=["young", "five minutes old"])
def test_after_five_minutes_a_pod_holds_its_place(age, passes):
    pods = [*running("a", 3), pod("a/large", 2, created=int(NOW) - age), pod("a/small", created=int(NOW) - 1)]
    decision = case(*pods, quotas=[quota("a", 9)], nodes=[machine("n1", 4)])
    assert [release.pod for release in decision.ungate] == passes


@pytest.mark.parametrize("fields", [{}, {"non_preemptible": True}], ids=["above max", "may not borrow"])
def test_whom_its_own_quota_keeps_out_keeps_out_no_other_quota(fields):
    """Q18: replicas beyond a team's max wait for good; what others lend stays to be borrowed meanwhile."""
    waiting = [pod(f"a/{name}", created=1000, **fields) for name in ("x", "y", "z")]
    decision = case(
        *running("a", 2), *waiting, *running("b", 1), pod("b/borrower", 2, created=int(NOW) - 1),
        quotas=[quota("a", 2, None if fields else 2), quota("b", 1), quota("c", 2)], nodes=[machine("n1", 5)],
    )  # fmt: skip
    assert [release.pod for release in decision.ungate] == ["b/borrower"]


def test_a_claimant_at_its_own_max_keeps_no_room_from_others():
    """Q18: only its protected siblings could let it in, however many GPUs stand idle meanwhile."""
    decision = case(
        *running("a", 2, labels={"app": "web"}), pod("a/urgent", priority=10), pod("b/borrower", created=int(NOW)),
        quotas=[quota("a", 2, 2), quota("b", 0), quota("c", 4)], nodes=[machine("n1", 3)],
        budgets=[budget("a", 0, app="web")],
    )  # fmt: skip
    assert ([release.pod for release in decision.ungate], decision.evict) == (["b/borrower"], ())


def test_whom_only_its_own_quota_could_make_way_for_keeps_nothing_from_others():
    """Q18: a alone owns GPUs and uses them all; what a's next pod needs of CPU stays to be borrowed until a's own end."""
    decision = case(
        *running("a", 2), pod("a/next", cpu=6), pod("b/borrower", 0, cpu=8, created=int(NOW)),
        quotas=[quota("a", 2, cpu=10), quota("b", cpu=0)], nodes=[machine("n1", 4)],
    )  # fmt: skip
    assert [release.pod for release in decision.ungate] == ["b/borrower"]


def test_whom_others_could_make_way_for_keeps_its_place_in_all_that_it_needs():
    """As before, but the other GPU is lent to b: when b's pod ends, a's next pod must find its CPUs."""
    decision = case(
        *running("a", 1), *running("b", 1), pod("a/next", 1, cpu=6), pod("b/late", 0, cpu=8, created=int(NOW)),
        quotas=[quota("a", 1, cpu=10), quota("b", 1, cpu=0)], nodes=[machine("n1", 4)],
    )  # fmt: skip
    assert decision.ungate == ()


def test_nothing_is_kept_on_a_node_that_has_none_left_at_all_of_what_is_lacked():
    """Q18: b, within its min, uses the only GPU; that nobody else got CPUs would help a/old to nothing."""
    decision = case(
        *running("b", 1), pod("a/old", cpu=4), pod("c/cpu", 0, cpu=8, created=int(NOW)),
        quotas=[quota("a", 1), quota("b", 1), quota("c", cpu=8)], nodes=[machine("n1", 1, 8)],
    )  # fmt: skip
    assert [release.pod for release in decision.ungate] == ["c/cpu"]


def test_a_pod_above_max_holds_its_place_before_others_of_its_quota():
    pods = [*running("a", 3), pod("a/large", 2, created=1000), pod("a/small", created=int(NOW) - 1)]
    assert case(*pods, quotas=[quota("a", 2, 4), quota("b", 7)], nodes=[machine("n1", 9)]).ungate == ()


def test_a_reason_tells_what_is_used_from_what_is_kept():
    """L01: the status of the quota says 2, so the reason must not say 3."""
    decision = case(*running("a", 2), pod("a/x"), pod("a/y"), quotas=[quota("a", 2, 2)], nodes=[machine("n1", 5)])
    assert [item.message for item in decision.waiting] == [
        "a/quota uses 2 nvidia.com/gpu, the pod asks for 1, and the max of a/quota is 2; "
        "all quotas together use 2 nvidia.com/gpu, the pod asks for 1, and the mins of all quotas add up to 2",
        "a/quota uses 2 nvidia.com/gpu besides 1 kept for pods before this one, the pod asks for 1, "
        "and the max of a/quota is 2; "
        "all quotas together use 2 nvidia.com/gpu, the pod asks for 1, and the mins of all quotas add up to 2",
    ]


def test_who_could_never_run_holds_nothing():
    """Q18: six GPUs on nodes of four."""
    decision = case(pod("a/huge", 6), pod("a/modest"), quotas=[quota("a", 6)], nodes=[machine("n1", 4)])
    assert [release.pod for release in decision.ungate] == ["a/modest"]


def test_who_could_never_run_uses_up_nothing_of_what_its_own_team_owns():
    """Q18: a/modest is within min and goes first; else b would get the one GPU, and lose it again to a's claim."""
    decision = case(
        pod("a/huge", 4), pod("a/modest", created=1001), pod("b/borrower", priority=10),
        quotas=[quota("a", 4), quota("b", 0)], nodes=[machine("n1", 1)],
    )  # fmt: skip
    assert [release.pod for release in decision.ungate] == ["a/modest"]


def test_who_is_within_min_but_larger_than_max_uses_up_nothing_of_what_its_own_team_owns():
    """Q18: a/huge asks for more CPU than a may ever use; else b's pod would get the GPU that a/modest owns."""
    decision = case(
        pod("a/huge", cpu=4), pod("a/modest", created=1001), *running("b", 1), pod("b/borrower", priority=10),
        quotas=[replace(quota("a", 1), max={"cpu": 1000}), quota("b", 1)], nodes=[machine("n1", 2)],
    )  # fmt: skip
    assert [release.pod for release in decision.ungate] == ["a/modest"]


def test_a_grace_is_capped():
    decision = case(*running("a", 1, grace_s=86_400), pod("b/claim"), quotas=[quota("a", 0), quota("b", 1)])
    assert [evict.grace_s for evict in decision.evict] == [600]


def test_a_faulty_quota_makes_only_its_own_pods_wait():
    """Q34, Q37."""
    broken = quota("broken", 4, 2, faults=("spec.min is more than spec.max",))
    decision = case(pod("broken/one"), *running("a", 2), pod("b/two"), quotas=[broken, quota("a", 1), quota("b", 1)])
    assert victims(decision) == ["a/a-1"]
    waiting = {item.pod: item.reason for item in decision.waiting}
    assert waiting == {"broken/one": names.QUOTA_INVALID, "b/two": names.EVICTING}


def test_what_is_promised_to_one_quota_is_not_charged_to_another():
    """Q03: b's claimant takes four of the six; c's is judged by what c uses, and borrows one of the rest."""
    pods = [*running("a", 2), pod("b/big", 4, created=1), pod("c/one")]
    decision = case(*pods, quotas=[quota("a", 1), quota("b", 4), quota("c", 2)], nodes=[machine("n1", 8)])
    assert [release.pod for release in decision.ungate] == ["b/big", "c/one"]
    assert {status.key: status.used[names.GPU] for status in decision.quotas} == {
        "a/quota": 2000, "b/quota": 4000, "c/quota": 1000,
    }  # fmt: skip


def test_a_quota_with_min_zero_gives_back_everything():
    """Q09."""
    decision = case(
        *running("guest", 2), pod("a/job", 2), quotas=[quota("a", 2), quota("guest", 0)], nodes=[machine("n1", 2)]
    )
    assert victims(decision) == ["guest/guest-1", "guest/guest-0"]


def test_idle_and_borrowed_gpus_together_are_enough():
    """Q13: three idle, two of the newest; not the eight-GPU pod of lower priority, which is within min."""
    low = [
        pod("low/l-1", 2, node="n1", created=1, priority=10),
        pod("low/l-2", 8, node="n1", created=2),
        pod("low/l-3", 2, node="n1", created=3, priority=10),
    ]
    decision = case(
        *low, *running("other", 1), pod("high/h", 5),
        quotas=[quota("low", 10), quota("other", 1), quota("high", 5)], nodes=[machine("n1", 16)],
    )  # fmt: skip
    assert victims(decision) == ["low/l-3"]


def test_pods_that_have_ended_use_nothing_though_a_finalizer_keeps_them():
    """Q21."""
    done = pod("a/done", node="n1", finished=True, running=False, terminating=True)
    decision = case(done, pod("a/next"), quotas=[quota("a", 1, 1)])
    assert ([release.pod for release in decision.ungate], decision.evict) == (["a/next"], ())


def test_a_victim_that_somebody_else_deletes_counts_for_its_own_quota_until_it_ends():
    going = pod("a/going", node="n1", terminating=True)
    decision = case(going, pod("a/next"), quotas=[quota("a", 1, 1)])
    assert (decision.ungate, decision.evict) == ((), ())
    (status,) = decision.quotas
    assert status.used == {names.GPU: 1000}


@pytest.mark.parametrize("fields", [{"terminating": True}, {"namespace": "gone"}], ids=["being deleted", "gone"])
def test_what_leaves_for_a_claimant_that_will_not_come_counts_for_its_own_quota_until_it_ends(fields):
    view = teams([machine("n1", 5)], [quota("a", 4), quota("b", 1)], [*running("a", 5), pod("b/claim")])
    view = carried_out(view, settle(view))
    view = replace(view, pods=tuple(replace(p, **fields) if p.key == "b/claim" else p for p in view.pods))
    assert {status.key: status.used[names.GPU] for status in settle(view).quotas} == {"a/quota": 5000, "b/quota": 0}


def test_nobody_goes_from_a_node_that_is_not_ready_for_there_no_pod_ends():
    """The claimant would wait for b/newest until the node comes back, though b/b-1 could have gone at once."""
    quotas, nodes = [quota("a", 2), quota("b", 1)], [replace(machine("away"), ready=False), machine("n1")]
    newest = pod("b/newest", node="away", created=2000)
    assert victims(case(*running("b", 2), newest, pod("a/claim"), quotas=quotas, nodes=nodes)) == ["b/b-1"]
    decision = case(*running("b", 1), newest, pod("a/claim", 2), quotas=quotas, nodes=nodes)
    assert decision.evict == ()
    assert "1 on nodes that are not ready, where no pod ends" in decision.waiting[0].message


def test_a_claimant_takes_what_is_free_while_its_victims_end():
    """On n0 its victim holds all; n1, from where another goes for the sum of mins, has two free."""
    going = {"terminating": True, "evicted_for": "a/claim"}
    pods = [pod("b/holds", 2, node="n0", **going), pod("b/more", node="n1", **going), pod("a/runs", node="n1")]
    decision = case(
        *pods, pod("a/claim"), quotas=[quota("a", 2), quota("b", 3)], nodes=[machine("n0", 2), machine("n1")]
    )
    assert [release.pod for release in decision.ungate] == ["a/claim"]


@pytest.mark.parametrize("comes", ["b/again", "c/other"])
def test_nobody_goes_a_second_time_for_what_a_claimant_leaves_that_comes_no_more(comes):
    """A claimant is replaced by its controller, under another name, while its victims end: the next one waits for these."""
    quotas = [quota("a", 0), quota("b", 2), quota("c", 2)]
    view = teams([machine("n1", 4)], quotas, [*running("a", 4), pod("b/claim", 2)])
    view = carried_out(view, settle(view))
    view = replace(view, pods=(*without(view, {"b/claim"}).pods, pod(comes, 2)))
    decision = settle(view)
    assert (decision.evict, decision.ungate) == ((), ())
    (waiting,) = decision.waiting
    assert (waiting.pod, waiting.reason) == (comes, names.QUOTA_USED_UP)
    assert waiting.message.startswith("waits until pods on their way out have ended; all quotas together use 4 ")
    assert [release.pod for release in settle(without(view, {"a/a-3", "a/a-2"})).ungate] == [comes]


def test_a_mark_alone_takes_nobody_off_the_books():
    """A leader died between the mark and the eviction: the pod still runs, and the same is decided again."""
    view = teams([machine("n1", 5)], [quota("a", 4), quota("b", 1)], [*running("a", 5), pod("b/claim")])
    marked = replace(view, pods=tuple(replace(p, evicted_for="b/claim" if p.key == "a/a-4" else "") for p in view.pods))
    assert settle(marked) == settle(view)


def test_replicas_of_a_gang_are_no_more_protected_than_others():
    """Q39: what is borrowed can always be taken back; only budgets and the annotation protect."""
    gang = running("a", 2, controlled=True, labels={"gang": "one", "min-available": "1"})
    assert victims(case(*gang, pod("b/claim"), quotas=[quota("a", 0), quota("b", 2)], nodes=[machine("n1", 2)])) == [
        "a/a-1"
    ]


def test_what_victims_leave_is_their_claimants_though_somebody_comes_who_stands_before():
    quotas = [quota("a", 1), quota("b", 1), quota("guest", 0)]
    view = teams([machine("n1", 2)], quotas, [*running("guest", 2), pod("b/claim")])
    view = carried_out(view, settle(view))
    view = replace(view, pods=(*view.pods, pod("a/late", priority=100, created=1)))
    decision = settle(view)
    assert [(evict.pod, evict.claimant) for evict in decision.evict] == [("guest/guest-0", "a/late")]
    view = without(carried_out(view, decision), {"guest/guest-1"})
    assert [release.pod for release in settle(view).ungate] == ["b/claim"]


def test_it_is_the_claimants_until_it_has_it():
    """All victims have ended, and only the claimant's condition still tells of them."""
    quotas = [quota("a", 1), quota("b", 1), quota("guest", 0)]
    view = teams([machine("n1", 2)], quotas, [*running("guest", 2), pod("b/claim")])
    view = without(carried_out(view, settle(view)), {"guest/guest-1"})
    late = replace(view, pods=(*view.pods, pod("a/late", priority=100, created=1)))
    assert [release.pod for release in settle(late).ungate] == ["b/claim"]


def test_a_team_that_takes_back_borrows_nothing_meanwhile():
    """Else its claimant would find its min used by its own borrowers, and stand behind others when its victims have gone."""
    quotas = [quota("a", 2), quota("b", 2), quota("c", 2)]
    nodes = [machine("n1", 4), machine("n2", 1)]
    view = teams(nodes, quotas, [*running("b", 4), pod("a/claim", 2)])
    view = carried_out(view, settle(view))
    view = replace(view, pods=(*view.pods, pod("a/small")))
    decision = settle(view)
    assert (decision.ungate, decision.evict) == ((), ())
    assert {item.pod: item.reason for item in decision.waiting}["a/small"] == names.PLACE_HELD


# Reasons (L01): each says its numbers, and what would have to happen --------------------------------------------------


def reasons_of(decision):
    return {item.pod: (item.reason, item.message) for item in decision.waiting}


@pytest.mark.parametrize(
    ("fields", "budgets", "why"),
    [
        pytest.param(
            {"labels": {"app": "web"}}, [budget("a", 0, app="web")],
            "3 under PodDisruptionBudget a/budget that allows no more", id="budget",
        ),
        pytest.param(
            {"labels": {"app": "web", "tier": "front"}}, [budget("a", 9, app="web"), replace(budget("a", 9, tier="front"), name="second")],
            "3 under more than one PodDisruptionBudget (a/budget, a/second)", id="two budgets",
        ),
        pytest.param(
            {"labels": {"app": "web", "tier": "front"}}, [replace(budget("a", 9, tier="front"), name="second"), budget("a", 9, app="web")],
            "3 under more than one PodDisruptionBudget (a/budget, a/second)", id="two budgets, the other one first",
        ),
        pytest.param({"refused_until": NOW + 1}, [], "3 just refused by the API server", id="refused"),
        pytest.param({"non_preemptible": True}, [], "3 non-preemptible", id="non-preemptible"),
        pytest.param({"terminating": True}, [], "3 not bound yet, or ending", id="deleted by somebody else"),
    ],
)  # fmt: skip
def test_a_claimant_is_told_who_might_go_and_why_they_stay(fields, budgets, why):
    decision = case(
        *running("a", 4, **fields), pod("b/claim", 2), quotas=[quota("a", 1), quota("b", 3)], budgets=budgets
    )
    assert reasons_of(decision)["b/claim"] == (
        names.NOTHING_TO_RECLAIM,
        "all quotas together use 4 nvidia.com/gpu, the pod asks for 2, and the mins of all quotas add up to 4; "
        f"no eviction that is allowed would help (of the pods that it might displace: {why})",
    )


def test_a_claimant_that_lacks_only_room_is_told_so_too():
    decision = case(
        *running("a", 4, labels={"app": "web"}), pod("b/claim", 2),
        quotas=[quota("a", 1), quota("b", 9)], nodes=[machine("n1", 4)], budgets=[budget("a", 0, app="web")],
    )  # fmt: skip
    assert reasons_of(decision)["b/claim"] == (
        names.NOTHING_TO_RECLAIM,
        "no eviction that is allowed would help (of the pods that it might displace: 3 under PodDisruptionBudget a/budget "
        "that allows no more); 1 node has not nvidia.com/gpu (needs 2, at most 0 left)",
    )


def test_who_is_kept_from_what_is_free_is_told_for_whom():
    pods = [*running("a", 3), pod("a/large", 2, created=1000), pod("a/small", created=int(NOW) - 1)]
    assert reasons_of(case(*pods, quotas=[quota("a", 9)], nodes=[machine("n1", 4)])) == {
        "a/large": (
            names.NODES_FULL,
            "1 node has not nvidia.com/gpu (needs 2, at most 1 left); what is free on node n1 is kept for it",
        ),
        "a/small": (
            names.PLACE_HELD,
            "node n1 has room for it, but keeps it for a/large, which stands before this pod",
        ),
    }


def test_who_could_never_run_is_told_so():
    decision = case(pod("a/huge", 6), pod("a/vast", 9), quotas=[quota("a", 6)], nodes=[machine("n1", 4)])
    assert reasons_of(decision) == {
        "a/huge": (
            names.NODES_FULL,
            "no node open to the pod is large enough: nvidia.com/gpu (needs 6, the largest has 4)",
        ),
        "a/vast": (
            names.QUOTA_USED_UP,
            "all quotas together use 0 nvidia.com/gpu, the pod asks for 9, and the mins of all quotas add up to 6; "
            "it can never run unless that is raised",
        ),
    }


def test_a_claimant_is_told_for_whose_end_it_waits_from_the_first_moment_to_the_last():
    view = teams([machine("n1", 4)], [quota("a", 1), quota("b", 3)], [*running("a", 4), pod("b/claim", 2)])
    first = settle(view)
    assert reasons_of(first)["b/claim"] == (
        names.EVICTING,
        "waits until pods evicted for it have ended: a/a-3, a/a-2",
    )
    half = without(carried_out(view, first), {"a/a-3"})
    assert reasons_of(settle(half))["b/claim"] == (
        names.EVICTING,
        "waits until pods evicted for it have ended: a/a-2; "
        "all quotas together use 3 nvidia.com/gpu, the pod asks for 2, and the mins of all quotas add up to 4",
    )


def test_a_pod_whose_quota_has_gone_loses_its_label():
    """Else it is said to run on what is borrowed, though nobody could take it back; one that waits for a fault keeps it."""
    pods = [*running("a", 2), *running("b", 2)]
    view = teams([machine("n1", 4)], [quota("a", 1), quota("b", 1, faults=("spec.min: none",))], pods)
    labelled = replace(
        view, pods=tuple(replace(p, capacity=names.OVER_QUOTA) for p in view.pods), quotas=view.quotas[1:]
    )
    decision = settle(labelled)
    assert [(each.pod, each.capacity) for each in decision.relabel] == [("a/a-0", ""), ("a/a-1", "")]
