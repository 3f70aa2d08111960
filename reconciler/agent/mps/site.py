"""Where the MPS daemons of a node live: their directories, by whom these can be reached, and how their program is run.

    ROOT/<uuid of the board>/pipe    0755 CUDA_MPS_PIPE_DIRECTORY: containers get it; only the daemon makes files in it
    ROOT/<uuid of the board>/log     0755 CUDA_MPS_LOG_DIRECTORY, of the clients' uid, since the server writes there as it
    ROOT/<uuid of the board>/output  what the daemon prints

All of these can be passed by everybody: the server of a daemon runs as the uid of its clients, and a directory above that
shuts it out keeps it from starting (pain A20).
"""

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from policies import names
from policies.settings import DEFAULTS
from reconciler.agent.driver import DriverError

PROGRAM: Final = "nvidia-cuda-mps-control"
PIPES: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOGS: Final = "CUDA_MPS_LOG_DIRECTORY"
VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
SELINUX: Final = Path("/sys/fs/selinux/enforce")  # is there if SELinux is on, enforcing or not
NODE: Final = Path("/proc/1/root")  # the files of the node, where its processes are seen
NODE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # ours says nothing of its files
LABEL: Final = b"system_u:object_r:container_file_t:s0"  # what containers may use, by the policy of their runtimes


class MpsSite(msgspec.Struct, frozen=True, kw_only=True):
    """How MPS is set up on a node.

    Attributes:
        root: directory of all daemons; the same path on the node and where the agent runs.
        uid: of the clients, and so of the servers; the cluster's setting `mps.userID`, by which the webhook lets pods run.
        program: name or path of the control daemon's program.
        on_host: whether programs are run among the files of the node (as its process 1 sees them), and not among ours.
        cgroup: directory of a cgroup into which daemons are moved, out of the agent's; None: they stay in it.
    """

    root: Path = Path("/run/apportion/mps")
    uid: int = DEFAULTS.mps.user_id
    program: str = PROGRAM
    on_host: bool = False
    cgroup: Path | None = None

    def pipes(self, board: str) -> Path:
        """Return the pipe directory of a board's daemon."""
        return self.root / board / "pipe"

    def logs(self, board: str) -> Path:
        """Return the log directory of a board's daemon."""
        return self.root / board / "log"

    def output(self, board: str) -> Path:
        """Return the file to which a board's daemon prints."""
        return self.root / board / "output"

    def environment(self, board: str) -> dict[str, str]:
        """Return the variables of the program: a board and its directories, and where it and its libraries are found."""
        found = {"PATH": NODE_PATH} if self.on_host else os.environ
        return {**found, VISIBLE: board, PIPES: str(self.pipes(board)), LOGS: str(self.logs(board))}

    def command(self, *arguments: str, uid: int | None = None) -> list[str]:
        """Return how the program is run; `uid`: as this user, of a group and nothing else that is its own."""
        as_user = ["--setuid", str(uid), "--setgid", str(uid)] if uid is not None else []
        prefix = ["nsenter", "--target", "1", "--mount", *as_user, "--"] if self.on_host else []
        return [*prefix, self.program, *arguments]

    def prepare(self, board: str) -> None:
        """Make the directories of a board. Raises DriverError, also if the clients' uid cannot reach them."""
        pipes, logs = self.pipes(board), self.logs(board)
        try:
            for directory in (self.root, self.root / board, pipes, logs):
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(0o755)
            if os.geteuid() == 0:
                os.chown(logs, self.uid, self.uid)
        except OSError as error:
            raise DriverError(f"the directories of MPS cannot be made: {error}") from error
        if SELINUX.exists():
            _label(self.root / board)
        self.check(board)

    def check(self, board: str) -> None:
        """Raise DriverError if the clients' uid cannot reach the pipes of a board any more; the first directory is named."""
        pipes = self.pipes(board)
        try:
            closed = first_closed(pipes, self.uid, NODE if self.on_host else Path("/"))
        except OSError as error:
            raise DriverError(f"the directories of MPS are gone: {error}") from error
        if closed:
            directory, mode = closed
            raise DriverError(
                f"{directory} is closed to uid {self.uid} (mode {mode:04o}), so that no MPS client reaches {pipes}: run "
                f"chmod o+x {directory}, or move the root of MPS"
            )


def first_closed(path: Path, uid: int, root: Path = Path("/")) -> tuple[Path, int] | None:
    """Return the first directory from / on, itself included, that a user cannot pass, and its mode; None if it can reach it.

    Groups do not count: of which a container's process is a member is known only when it runs. `root` is what / is.
    """
    for directory in (*reversed(path.parents), path):
        found = (root / directory.relative_to("/")).stat()
        if not found.st_mode & (stat.S_IXUSR if found.st_uid == uid else stat.S_IXOTH):
            return directory, stat.S_IMODE(found.st_mode)
    return None


def _label(directory: Path) -> None:
    """Let containers use what is in a directory, and what will be, under SELinux. Raises DriverError."""
    for path in (directory, *directory.iterdir()):
        try:
            os.setxattr(path, "security.selinux", LABEL)
        except OSError as error:
            raise DriverError(
                f"SELinux keeps the agent from labelling {path} {LABEL.decode()}: {error.strerror}; run the agent privileged "
                f"(seLinuxOptions: {{type: spc_t}}), or label the node {names.PARTITIONING_LABEL}={names.MIG}"
            ) from error
