"""The table of docs/audits.md: every true claim and every counter-example, audited once from a seed.

Run it from the root of the project: PYTHONPATH=. python benchmarks/audit_counterexamples.py [CASE | power]
"""

import math
import sys

from tests.unit.audits.audit_cases import (
    make_config,
    make_target,
    repeated_noise,
    scaled_noise,
    target_with_misdeclared_encoder,
    target_with_unsound_means,
)
from vpdr.audits import AuditOptions, AuditTarget, audit, request_from_options

PERSONAL = request_from_options(AuditOptions(encoder="personal"))
FACTORS = (1.0, 0.8, 0.7, 0.6, 0.5, 0.25)


def rapp_target(*settings: str, **options: object) -> AuditTarget:
    """A client of rapp with one stage in each of five releases."""
    return make_target(*settings, **{"mechanism": "rapp", "rounds": 5, "adjacency": "replace-one", **options})


CASES = {
    "igpp, means": lambda: audit(make_target(rounds=20), config=make_config(600)),
    "vpp, means": lambda: audit(make_target(rounds=20, mechanism="vpp"), config=make_config(150)),
    "none, means": lambda: audit(make_target(rounds=20, mechanism="none"), config=make_config(600)),
    "igpp, sums, replace-one": lambda: audit(make_target(rounds=1, adjacency="replace-one"), config=make_config(2000)),
    "rapp, replace-one": lambda: audit(rapp_target(), config=make_config(200)),
    "rapp, replace-one, hostile server": lambda: audit(rapp_target(), config=make_config(200, lying_server=True)),
    "rapp, replace-one, ε = 8, hostile server": lambda: audit(
        rapp_target(epsilon=8.0), config=make_config(200, lying_server=True)
    ),
    "rapp, add-remove, ε = 8, hostile server": lambda: audit(
        rapp_target(adjacency="add-remove", epsilon=8.0), config=make_config(200, lying_server=True)
    ),
    "rapp, two centres a class, ε = 8, hostile server": lambda: audit(
        rapp_target("mechanism.per_class=2", adjacency="replace-same-label", epsilon=8.0),
        config=make_config(200, lying_server=True),
    ),
    "rapp, noise halved, hostile server": lambda: audit(
        rapp_target(), config=make_config(200, noise=scaled_noise(0.5), lying_server=True)
    ),
    "rapp, noise halved, ε = 8, hostile server": lambda: audit(
        rapp_target(epsilon=8.0), config=make_config(200, noise=scaled_noise(0.5), lying_server=True)
    ),
    "noise halved": lambda: audit(make_target(rounds=1), config=make_config(6000, noise=scaled_noise(0.5))),
    "factor √20 missing": lambda: audit(
        make_target(rounds=20), config=make_config(600, noise=scaled_noise(1 / math.sqrt(20)))
    ),
    "trained encoder claimed as proved": lambda: audit(
        target_with_misdeclared_encoder(), config=make_config(100, pair="mislabelled")
    ),
    "personal encoder (paper settings)": lambda: audit(PERSONAL.target, config=make_config(40)),
    "k-means centroids": lambda: audit(make_target(rounds=1, summariser="kmeans"), config=make_config(600)),
    "FINCH": lambda: audit(make_target(rounds=1, summariser="finch"), config=make_config(400, pair="restless")),
    "counts in the noise, replace-one": lambda: audit(
        target_with_unsound_means(), config=make_config(600, pair="relabelled")
    ),
    "class that vanishes, replace-one": lambda: audit(
        target_with_unsound_means(), config=make_config(400, pair="vanishing")
    ),
    "seed used again": lambda: audit(make_target(), config=make_config(600, noise=repeated_noise())),
}


def power() -> None:
    """How much noise five stages may lack before 200 runs of each world refute the claim."""
    print("| noise | server | certified ε | on a Gaussian curve | verdict |\n|---|---|---|---|---|")
    for factor in FACTORS:
        for server, hostile in (("honest", False), ("hostile", True)):
            target = rapp_target(adjacency="replace-same-label", epsilon=8.0)
            config = make_config(200, noise=scaled_noise(factor), lying_server=hostile, pair="antipodal")
            result = audit(target, config=config)
            verdict = "**refuted**" if result.refuted else "not refuted"
            bounds = f"{result.certified_epsilon:.2f} | {result.epsilon_if_gaussian:.2f}"
            print(f"| {factor:g} | {server} | {bounds} | {verdict} |", flush=True)


def main(selected: str = "") -> None:
    if selected == "power":
        power()
        return
    print("| case | releases | claimed ε | level | certified ε | on a Gaussian curve | pair | runs | verdict |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, run in CASES.items():
        if name.startswith(selected):
            result = run()
            claim, verdict = result.claim, "**refuted**" if result.refuted else "not refuted"
            print(
                f"| {name} | {claim.releases} | {claim.epsilon:.3g} | {claim.level} "
                f"| {result.certified_epsilon:.2f} | {result.epsilon_if_gaussian:.2f} | {result.pair} "
                f"| {result.trials} | {verdict} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
