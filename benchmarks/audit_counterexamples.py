"""The table of docs/audits.md: every sound claim and every counter-example, audited once from a seed.

Run it from the root of the project: PYTHONPATH=. python benchmarks/audit_counterexamples.py [CASE]
"""

import math
import sys

from tests.audits.audit_cases import effort, same_draws, subject, weaker, with_bold_means, with_liar
from vpdr.audits import audit
from vpdr.audits.requests import Wish, from_wish

LEARNING = from_wish(Wish(encoder="personal"))
CASES = {
    "igpp, means": lambda: audit(subject(rounds=20), effort=effort(600)),
    "vpp, means": lambda: audit(subject(rounds=20, mechanism="vpp"), effort=effort(150)),
    "none, means": lambda: audit(subject(rounds=20, mechanism="none"), effort=effort(600)),
    "strict (igpp, sums, replace-one)": lambda: audit(
        subject(rounds=1, adjacency="replace-one"), effort=effort(2000)
    ),
    "strict, hostile server": lambda: audit(
        subject(rounds=1, adjacency="replace-one"), effort=effort(1000, lying_server=True)
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


def main(wanted: str = "") -> None:
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
