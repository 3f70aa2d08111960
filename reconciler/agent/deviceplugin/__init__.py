"""The real kubelet, behind its unix sockets: our device plugins, one per resource, and its pod-resources service.

Only what is in here, and the code that is generated in `proto`, imports grpc.
"""

import os

# Both are read when grpc is first imported. Below that it tells of every connection that ends, past our log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Children of ours become another program at once. Else grpc starts its threads anew in each before that, and now and then
# one of these crashes it (seen: SIGSEGV in 1 of some 300), so that a daemon of MPS was said not to serve.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
