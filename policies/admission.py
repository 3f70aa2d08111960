"""Admission of a pod: what is patched, what is warned about, or every reason to deny it. The one entry point.

The webhook asks it for every review, `explain` and `simulate` for pods in files.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from policies import names
from policies.asked import at
from policies.charges import derived
from policies.constraints import constraints_of
from policies.containers import places
from policies.estimate import UNGOVERNED, Estimate, Standings
from policies.faults import fault
from policies.inventory import NOTHING, Inventory, Offer
from policies.isolation import barred_modes, beyond_reach
from policies.model import Pod
from policies.mutation import given, mutate
from policies.outstanding import NONE, Outstanding, Slices
from policies.patch import Operation
from policies.pieces import NOT_LIMITED, client_limits
from policies.placement import profile_of
from policies.policy import NO_POLICY, PolicyView, Rule
from policies.requests import Requests, Slice, may_ask, read_requests
from policies.settings import Settings
from policies.site import BoardKind
from policies.slicing import Choice, Slicing, Wanted, choose
from policies.view import view_pod


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the review of one pod.

    Attributes:
        patch: what to change; empty if the pod is denied, or fine as it is.
        warnings: what the person should know, shortest useful text.
        faults: why it is denied, all of it; empty if it is admitted.
        reasons: why it is changed as it is, and by which rule it is changed or denied, for people who ask.
        given: slices that it is given and had not been given before.
    """

    patch: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    given: Slices = {}


def admit(
    pod: Pod,
    *,
    namespace: str,
    labels: Mapping[str, str],
    inventory: Inventory,
    settings: Settings,
    policy: PolicyView = NO_POLICY,
    standings: Standings = UNGOVERNED,
    taken: Outstanding = NONE,
) -> Admission:
    """Return the answer for a new pod.

    `namespace` is the review's, since the pod may lack it; `labels` are its. `taken` is what pods before it were given and
    the inventory does not show yet.
    """
    governed, rule = standings.governs(namespace), policy.rule_for(pod.metadata.labels)
    terms = rule.terms(settings.quota.shared_replicas)
    offer = inventory.offer(constraints_of(pod.spec), terms.models) if governed or may_ask(pod) else NOTHING
    requests = read_requests(pod, offer.foreign, rule)
    judged = (f"judged by {policy.said(rule)}: modes {', '.join(rule.modes)}",) if requests.asks else ()
    if policy.faults and requests.asks:
        return Admission(faults=(*requests.faults, *(f"{policy.title}: {text}" for text in policy.faults)))
    faults = [*requests.faults, *_modes_not_allowed(pod, requests, rule), *_too_many(requests, rule)]
    slicing = Slicing()
    if requests.wishes and not _modes_unreadable(pod, requests):
        wanted = [
            Wanted(
                wish=wish,
                modes=(wish.ask.mode,) if isinstance(wish.ask, Slice) else requests.modes or rule.modes,
                barred=barred_modes(pod, wish, namespace=namespace, labels=labels, rule=rule, settings=settings),
            )
            for wish in requests.wishes
        ]
        slicing = choose(wanted, offer, inventory, terms, taken)
    faults += slicing.faults
    ours = _variables(slicing.choices) if rule.proportional_threads else {}
    for place in places(pod):
        faults += beyond_reach(
            place.path,
            place.container,
            rule,
            slices=requests.parts,
            own=policy.is_own(namespace),
            ours=ours.get(place.path, {}),
        )
    estimate = Estimate()
    if governed and not faults:
        seen = view_pod(given(pod, slicing.choices))
        charge = {**seen.request, **derived(seen.moments, offer.place, settings.quota)}
        estimate = standings.estimate(namespace, charge, borrows=not seen.non_preemptible, gates=policy.gates)
    cut = any(choice.cut for choice in slicing.choices)
    # Of a wish that cannot be understood nobody knows what it costs, but a quota will have to grant it.
    held = estimate.held or bool(faults and requests.asks and governed and policy.gates)
    faults += _past_the_gate(pod, "slice" if cut else "quota" if held else "")
    faults += estimate.faults
    if faults:
        return Admission(faults=tuple(faults), reasons=judged)
    return Admission(
        patch=mutate(
            pod,
            slicing.choices,
            rule=rule,
            settings=settings,
            capacity=estimate.capacity,
            governed=estimate.held,
        ),
        warnings=(
            *requests.warnings,
            *_warnings(pod, slicing.choices, rule, settings),
            *_no_whole(requests, offer),
            *estimate.warnings,
        ),
        reasons=(*_reasons(requests, slicing.choices), *estimate.reasons, *judged),
        given=_given(slicing.choices),
    )


# ---------------------------------------------------------------------------------------------------------------------


def _modes_unreadable(pod: Pod, requests: Requests) -> bool:
    return requests.modes is None and names.MODE in (pod.metadata.annotations or {})


def _modes_not_allowed(pod: Pod, requests: Requests, rule: Rule) -> Iterator[str]:
    """Yield the faults of modes that the policy does not let a pod name, or that the pod itself rules out."""
    allowed = f"the policy allows {', '.join(rule.nameable)}"
    text = (pod.metadata.annotations or {}).get(names.MODE, "")
    for mode in requests.modes or ():
        if mode not in rule.nameable:
            yield fault(at(names.MODE), text, f"{mode} may not be named here: {allowed}")
    for wish in requests.wishes:
        if not isinstance(wish.ask, Slice):
            continue
        if wish.ask.mode not in rule.nameable:
            yield fault(wish.path, wish.value, f"{wish.ask.resource} is made by {wish.ask.mode}: {allowed}")
        if requests.modes and wish.ask.mode not in requests.modes:
            yield fault(wish.path, wish.value, f"it is made by {wish.ask.mode}, but {names.MODE} says {text}: keep one")


def _too_many(requests: Requests, rule: Rule) -> Iterator[str]:
    slices, most = sum(wish.count for wish in requests.wishes), rule.limits.slices
    if most is not None and slices > most:
        yield fault("spec", f"{slices} slices", f"the policy lets a pod have {most} at most (maxSlicesPerPod)")


def _variables(choices: Sequence[Choice]) -> Mapping[str, Mapping[str, str]]:
    """Return the variables that we set, by path of the container: each MPS client's share of the threads."""
    clients = (choice for choice in choices if choice.mode == names.MPS)
    return {choice.wish.place.path: {names.THREAD_PERCENTAGE: str(choice.percent)} for choice in clients}


def _given(choices: Sequence[Choice]) -> Slices:
    """Return the slices that are new, where it is known which boards make them.

    A pod that comes back with our record (other webhooks have changed it since) has been given them already.
    """
    slices: dict[tuple[BoardKind, str], int] = {}
    for one in choices:
        if one.cut and one.model and not one.wish.answered:
            key = one.kind, profile_of(one.resource)
            slices[key] = slices.get(key, 0) + one.wish.count
    return slices


def _past_the_gate(pod: Pod, waits_for: str) -> Iterator[str]:
    if pod.spec.node_name and waits_for:
        yield fault(
            "spec.nodeName",
            pod.spec.node_name,
            f"a pod that names its node passes by the gate at which it waits for its {waits_for}: "
            "select the node by its label kubernetes.io/hostname",
        )


def _warnings(pod: Pod, choices: Sequence[Choice], rule: Rule, settings: Settings) -> Iterator[str]:
    for choice in choices:
        yield from choice.passed_over
        if choice.reason:
            yield choice.reason
        if choice.mode == names.MPS and not choice.wish.answered:
            yield _client(choice, rule, settings)
        if choice.reason and choice.wish.count > 1:
            yield (
                f"{choice.wish.place.container.name} gets {choice.wish.count} devices of that size, not one larger: "
                "a program must use each of them"
            )
    if names.EVICTED_FOR in (pod.metadata.annotations or {}):
        yield f"{names.EVICTED_FOR} marks a pod that is evicted, and only Apportion writes it: a new pod begins without it"
    if pod.spec.scheduler_name == names.NOS_SCHEDULER:
        yield f"schedulerName {names.NOS_SCHEDULER} is now {names.DEFAULT_SCHEDULER}: nos is no longer there"


_NO_WHOLE: Final = {
    names.TIMESLICING: ("a turn on a GPU", NOT_LIMITED),
    names.MPS: (
        "a part of a GPU by MPS",
        (
            "a program hangs there, for its pod is not given the user and the hostIPC of a client: have the node's file "
            f"rename it ({names.MPS_RESOURCE}<N>gb, with memoryGB), and ask for that"
        ),
    ),
}


def _no_whole(requests: Requests, offer: Offer) -> Iterator[str]:
    """Yield that no node has whole GPUs, or what is called one and is none: a file can fix that (docs/adr/0024, pain W32)."""
    if requests.whole and not offer.whole and (offer.up or offer.away):
        yield (
            f"no node that the pod may use announces {names.GPU}: where the label {names.PARTITIONING_LABEL} is, boards are "
            f'given as slices; ask for {names.FRACTION}: "1", or keep a node without the label'
        )
    for mode, (what, so) in _NO_WHOLE.items() if requests.whole else ():
        groups = [group for group in offer.up + offer.away if group.calls_gpu(mode)]
        if nodes := sorted(node for group in groups for node in group.nodes):
            more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
            yield f"{names.GPU} is {what} on {nodes[0]}{more}; {so}"


def _client(choice: Choice, rule: Rule, settings: Settings) -> str:
    """Return what is set for a client of MPS, and what its slice limits if the choice does not say so already."""
    host_ipc = " and spec.hostIPC is set" if rule.host_ipc else ""
    limits = "" if choice.reason else f"; {client_limits(choice.kind.model)}"
    return (
        f"{choice.wish.place.container.name} runs as user {settings.mps.user_id}{host_ipc}, "
        f"as clients of MPS must{limits}"
    )


def _reasons(requests: Requests, choices: Sequence[Choice]) -> Iterator[str]:
    for choice in choices:
        said = choice.reason or f"{choice.wish.said} is asked for by name"
        yield f"{choice.wish.place.container.name}: {said}"
        if choice.products:
            yield (
                f"{choice.wish.place.container.name}: kept to {', '.join(choice.products)}, "
                f"where {choice.resource} is what was asked for and what the policy allows"
            )
    yield from (f"{left} is left as it is" for left in requests.left)
    if any(choice.cut for choice in choices):
        yield f"waits at the gate {names.GATE} until its slices are there"
