"""What the API server makes of a pod before admission looks at it: requests default from limits, quantities are text.

Only that, so that what `explain` and `simulate` print stays what the person wrote. A shape that is no pod's is left as
it is: decoding tells.
"""

from policies.quantity import QuantityError, canonical

Raw = dict[str, object]
"""An object as YAML has it. Nobody changes it in place."""


def as_submitted(pod: Raw, faults: list[str], *, template: bool = False) -> Raw:
    """Return a pod as a webhook is shown it; the input is not changed. What is no quantity stays and is a fault.

    In the template of a workload requests are not defaulted: its pods' are.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    shown = _with_resources(spec, "spec", faults, default=False)
    for kind in ("initContainers", "containers"):
        if isinstance(containers := spec.get(kind), list):
            shown[kind] = [
                _with_resources(container, f"spec.{kind}[{index}]", faults, default=not template)
                if isinstance(container, dict)
                else container
                for index, container in enumerate(containers)
            ]
    if isinstance(overhead := spec.get("overhead"), dict):
        shown["overhead"] = _canonical(overhead, "spec.overhead", faults)
    return {**pod, "spec": shown}


def _with_resources(holder: Raw, path: str, faults: list[str], *, default: bool) -> Raw:
    """Return a copy of a container (or a pod's spec) with its resources written canonically."""
    resources = holder.get("resources")
    if not isinstance(resources, dict):
        return dict(holder)
    written: Raw = {
        key: _canonical(value, f"{path}.resources.{key}", faults) if isinstance(value, dict) else value
        for key, value in resources.items()
    }
    limits, requests = written.get("limits"), written.get("requests")
    if default and isinstance(limits, dict) and isinstance(requests, dict | None):
        written["requests"] = {**limits, **(requests or {})}
    return {**holder, "resources": written}


def _canonical(quantities: Raw, path: str, faults: list[str]) -> Raw:
    written = dict(quantities)
    for name, quantity in quantities.items():
        if isinstance(quantity, str | int | float) and not isinstance(quantity, bool):
            try:
                # A plain whole number stays readable: 3000, which the API server would show as 3k.
                written[name] = str(quantity) if str(quantity).isdecimal() else canonical(quantity)
            except QuantityError as error:
                faults.append(f"{path}[{name}]: {error}")
    return written
