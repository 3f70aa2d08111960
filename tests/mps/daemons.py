"""Control daemons without processes, for tests of what asks for them."""

from reconciler.agent.driver import DriverError


class NoProcesses:
    """Daemons that serve at once; `limits` are theirs, by board, `faults` what is wrong with them."""

    def __init__(self):
        self.limits, self.faults, self.last = {}, {}, set()

    def start(self, board, limit_mib, *, again=True):
        self.limits.setdefault(board, limit_mib)
        (self.last.discard if again else self.last.add)(board)

    def stop(self, board):
        self.limits.pop(board, None)
        self.last.discard(board)

    def retiring(self, board):
        return board in self.last

    def kept(self, board):
        return board in self.limits

    def fault(self, board):
        return self.faults.get(board) if self.kept(board) else None

    def limit(self, board, mib):
        if fault := self.fault(board):
            raise DriverError(fault)
        self.limits[board] = mib
