"""Names processes to people, who know pods and programs and no PIDs: `4711 python of pod team-a/train`, `99 nv-hostengine`."""

from collections.abc import Callable, Iterable
from pathlib import Path

from policies.view import PodView
from reconciler.agent.mps.usage import pod_of


class Processes:
    """The processes of this node. Any thread may ask.

    Args:
        proc: where the node's processes are; in the agent's pod its own, by `hostPID`.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._pods: Callable[[], Iterable[PodView]] = lambda: ()

    def of(self, pods: Callable[[], Iterable[PodView]]) -> None:
        """From now on name pods by what this returns of the node."""
        self._pods = pods

    def name(self, pid: int) -> str:
        """Return PID, program and pod, as far as they can be known: the process may have ended."""
        program, uid = self._read(pid, "comm").strip(), pod_of(self._read(pid, "cgroup"))
        words = [str(pid), *([program] if program else [])]
        if uid:
            words.append(f"of pod {next((pod.key for pod in self._pods() if pod.uid == uid), uid)}")
        return " ".join(words)

    def _read(self, pid: int, name: str) -> str:
        try:
            return (self._proc / str(pid) / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
