"""The leader's loop: observe the cluster, let `policies.settle` decide, apply the decision."""
