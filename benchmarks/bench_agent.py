"""One act and update of an Agent over one round of the compiled loop, which draws its own contexts.

    python benchmarks/bench_agent.py [--turns N]

Both sides play in turns in one process; times are of the processor. The lowest and the lower
quartile of the turns are reported, since other work on a machine only makes a turn longer.
"""

from __future__ import annotations

import argparse
from itertools import islice

from fairwolfe.lab import bench as speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=60)
    turns = parser.parse_args().turns
    for case in speed.CASES:
        agent = speed.agent_side(case.policy, case.environment)
        compiled = speed.compiled_side(speed.aged(case.policy, case.environment))
        agent(3000)  # the first decisions are not typical
        sides = {"agent": (agent, 200), "compiled": (compiled, 1000)}
        taken = list(islice(speed.turns(sides), turns))
        low, quarter = (
            {name: sorted(turn[name] for turn in taken)[place] for name in sides}
            for place in (0, turns // 4)
        )
        print(f"{case.name}, {case.size}")
        for what, at in (("lowest", low), ("lower quartile", quarter)):
            ratio = at["agent"] / at["compiled"]
            print(f"  {what}: agent {at['agent']:.1f} us, {ratio:.2f} compiled rounds")


if __name__ == "__main__":
    main()
