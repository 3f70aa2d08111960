"""The real kubelet, behind its unix sockets: our device plugins, one per resource, and its pod-resources service.

Only what is in here, and the code that is generated in `proto`, imports grpc.
"""

import os

# Read when grpc is first imported. Below that it tells of every connection that ends, past our log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
