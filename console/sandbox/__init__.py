"""A real Kubernetes control plane on this machine, with simulated GPU nodes and Apportion on it.

`lifecycle` is the way in, for the command line (`command`) and for tests: it gets the programs (`binaries`, `gotool`,
`build`), claims a directory (`rooms`) and starts a supervisor. That process (`supervisor`) boots the control plane
(`controlplane`, `credentials`, `readiness`) and our own processes (`services`), keeps them running (`crew`,
`processes`), and ends and removes all of it when nobody needs it any longer.
"""
