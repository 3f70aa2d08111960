"""A real Kubernetes control plane on this machine, with simulated GPU nodes and Apportion on it.

`lifecycle` is the way in, for the command line and for tests. In the order in which a start goes through them:

- the verbs: `command`, with `up`, `down`, `status` and `demo`; told by `progress`, faults by `errors`
- the programs: `binaries` (pinned in `go/`), `build` gets them, `gotool` runs Go
- a directory: `rooms`, held by `locks`; its processes are known again by `marks`
- the process that looks after it: `supervisor`, woken by `interrupts`, heard by `notices`
- what runs: `controlplane` with its `credentials` and `ports`, `nodes`, then our own `services`
- how it runs: `crew` keeps `processes` going
- how it is asked: `apiclient` and `readiness` by the supervisor, `kubectl` and `watching` by everybody else

The supervisor ends and removes all of it when nobody needs it any longer (docs/adr/0005).
"""
