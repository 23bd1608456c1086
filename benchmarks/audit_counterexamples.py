"""The table of docs/audits.md: every sound claim and every counter-example, audited once from a seed.

Run it from the root of the project: PYTHONPATH=. python benchmarks/audit_counterexamples.py [CASE | power]
"""

import math
import sys

from tests.audits.audit_cases import effort, same_draws, subject, weaker, with_bold_means, with_liar
from vpdr.audits import Subject, audit
from vpdr.audits.requests import Wish, from_wish

LEARNING = from_wish(Wish(encoder="personal"))
FACTORS = (1.0, 0.8, 0.7, 0.6, 0.5, 0.25)


def staged(*settings: str, **wish: object) -> Subject:
    """A client of rapp with a stage in each of five releases."""
    return subject(*settings, **{"mechanism": "rapp", "rounds": 5, "adjacency": "replace-one", **wish})


CASES = {
    "igpp, means": lambda: audit(subject(rounds=20), effort=effort(600)),
    "vpp, means": lambda: audit(subject(rounds=20, mechanism="vpp"), effort=effort(150)),
    "none, means": lambda: audit(subject(rounds=20, mechanism="none"), effort=effort(600)),
    "igpp, sums, replace-one": lambda: audit(subject(rounds=1, adjacency="replace-one"), effort=effort(2000)),
    "rapp, replace-one": lambda: audit(staged(), effort=effort(200)),
    "rapp, replace-one, hostile server": lambda: audit(staged(), effort=effort(200, lying_server=True)),
    "rapp, replace-one, ε = 8, hostile server": lambda: audit(
        staged(epsilon=8.0), effort=effort(200, lying_server=True)
    ),
    "rapp, add-remove, ε = 8, hostile server": lambda: audit(
        staged(adjacency="add-remove", epsilon=8.0), effort=effort(200, lying_server=True)
    ),
    "rapp, two centres a class, ε = 8, hostile server": lambda: audit(
        staged("mechanism.per_class=2", adjacency="replace-same-label", epsilon=8.0),
        effort=effort(200, lying_server=True),
    ),
    "rapp, noise halved, hostile server": lambda: audit(
        staged(), effort=effort(200, noise=weaker(0.5), lying_server=True)
    ),
    "rapp, noise halved, ε = 8, hostile server": lambda: audit(
        staged(epsilon=8.0), effort=effort(200, noise=weaker(0.5), lying_server=True)
    ),
    "noise halved": lambda: audit(subject(rounds=1), effort=effort(6000, noise=weaker(0.5))),
    "factor √20 missing": lambda: audit(
        subject(rounds=20), effort=effort(600, noise=weaker(1 / math.sqrt(20)))
    ),
    "trained encoder claimed as proved": lambda: audit(with_liar(), effort=effort(100, pair="mislabelled")),
    "personal encoder (paper settings)": lambda: audit(LEARNING.subject, effort=effort(40)),
    "k-means centroids": lambda: audit(subject(rounds=1, summariser="kmeans"), effort=effort(600)),
    "FINCH": lambda: audit(subject(rounds=1, summariser="finch"), effort=effort(400, pair="restless")),
    "counts in the noise, replace-one": lambda: audit(
        with_bold_means(), effort=effort(600, pair="relabelled")
    ),
    "class that vanishes, replace-one": lambda: audit(
        with_bold_means(), effort=effort(400, pair="vanishing")
    ),
    "seed used again": lambda: audit(subject(), effort=effort(600, noise=same_draws())),
}


def power() -> None:
    """How much noise may be missing from five stages before 200 runs of each world notice."""
    print("| noise | server | certified ε | on a Gaussian curve | verdict |\n|---|---|---|---|---|")
    for factor in FACTORS:
        for server, lying in (("honest", False), ("hostile", True)):
            made = staged(adjacency="replace-same-label", epsilon=8.0)
            hard = effort(200, noise=weaker(factor), lying_server=lying, pair="antipodal")
            found = audit(made, effort=hard)
            verdict = "**refuted**" if found.refuted else "not refuted"
            row = f"{factor:g} | {server} | {found.certified:.2f} | {found.on_the_curve:.2f} | {verdict}"
            print(f"| {row} |", flush=True)


def main(wanted: str = "") -> None:
    if wanted == "power":
        power()
        return
    print(
        "| case | releases | claimed ε | level | certified ε | on a Gaussian curve | pair | runs | verdict |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, run in CASES.items():
        if name.startswith(wanted):
            found = run()
            claim, verdict = found.claim, "**refuted**" if found.refuted else "not refuted"
            print(
                f"| {name} | {claim.releases} | {claim.epsilon:.3g} | {claim.level} | {found.certified:.2f} "
                f"| {found.on_the_curve:.2f} | {found.pair} | {found.trials} | {verdict} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
