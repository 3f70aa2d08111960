"""A cluster in memory on which the real decisions are tried out: what `apportion simulate` runs.

Admission and `policies.settle` are the ones of production. What stands in for the rest of Kubernetes is simple and
deterministic: a scheduler that knows nodes and room, kubelets that give out free slices, agents that take no time.
"""
