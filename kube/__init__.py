"""All input and output to the Kubernetes API server: client, informer, lease, work queue, Events.

Only `kube.client` imports the Kubernetes client library, and it hands out raw bytes that the callers
decode with msgspec into the narrow structs of `policies.model`. `kube.logs` is what all our processes log
by, and `kube.stopping` how the reconciler and agents are told to end.
"""
