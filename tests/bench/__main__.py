"""Run benchmarks by name, all without a name. Exit status 0 if they ran, whether or not the bars were met."""

import sys
from collections.abc import Callable, Iterator

from tests.bench import agent, fleet, fragmentation, fuzz, histories, memory, optimality, path, planner, quota, webhook
from tests.bench.figures import Figure

BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "agent": agent.run,
    "fleet": fleet.run,
    "fragmentation": fragmentation.run,
    "fuzz": fuzz.run,
    "histories": histories.run,
    "memory": memory.run,
    "optimality": optimality.run,
    "path": path.run,
    "planner": planner.run,
    "quota": quota.run,
    "webhook": webhook.run,
}


def main(chosen: list[str]) -> int:
    """Print one line for each figure of the chosen benchmarks."""
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in chosen or BENCHMARKS:
        for figure in BENCHMARKS[name]():
            print(figure.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
