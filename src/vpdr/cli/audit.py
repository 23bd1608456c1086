"""`vpdr audit`: a certified lower bound on what a claim is worth."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr.audits.audit import Effort, audit
from vpdr.audits.findings import Finding
from vpdr.audits.noises import noise_of
from vpdr.audits.requests import Wish, described, from_run, from_wish
from vpdr.cli.printing import console, print_json
from vpdr.errors import InvalidInput
from vpdr.plan.values import known
from vpdr.privacy import Adjacency
from vpdr.privacy.terms import DECLARED

SERVERS = {"honest": False, "hostile": True}
HOSTILE_ROUNDS = 5  # every lie is heard, and rapp makes one stage of each release
RunFolder = Annotated[
    Path | None, typer.Argument(metavar="[RUN_DIR]", help="A finished run: audit it as it is configured.")
]


def run_audit(  # noqa: PLR0913 - one parameter per option of the command
    folder: RunFolder = None,
    mechanism: Annotated[str | None, typer.Option(help="none, igpp, vpp, ... (igpp if not given).")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The ε that all rounds together claim (1).")] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of the claim (1e-5).")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="How many releases share the budget (20; hostile: 5).")
    ] = None,
    summariser: Annotated[
        str | None, typer.Option(help="means, sums, kmeans, finch (means, or sums for private counts).")
    ] = None,
    encoder: Annotated[str | None, typer.Option(help="public, transcript or personal (public).")] = None,
    adjacency: Annotated[
        str | None, typer.Option(help=f"{', '.join(Adjacency)} (replace-same-label).")
    ] = None,
    server: Annotated[str, typer.Option(help="honest, or hostile: it lies about what it heard.")] = "honest",
    pair: Annotated[str, typer.Option(help="Only this pair of datasets; the easiest if not given.")] = "",
    trials: Annotated[int, typer.Option(help="Runs of each world; 0 is half a minute's worth.")] = 0,
    confidence: Annotated[float, typer.Option(help="That the bounds are true, below 1.")] = 0.95,
    seed: Annotated[
        int | None, typer.Option(help="Repeat an audit; the system's noise if not given.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Certify a lower bound on ε for a mechanism or a run; exit 1 if what it claims is refuted."""
    known("server", [server], SERVERS)
    asked = {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "summariser": summariser,
        "encoder": encoder,
        "adjacency": adjacency,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if SERVERS[server] and folder is None:
        given.setdefault("rounds", HOSTILE_ROUNDS)
    request = _request(folder, given, settings or [])
    effort = Effort(
        trials=trials,
        confidence=confidence,
        noise=noise_of(seed),
        lying_server=SERVERS[server],
        pair=pair,
        told=Teller(show=not as_json).told,
    )
    found = audit(request.subject, request.claim, effort)
    about = {**described(request.subject), "server": server, "seed": seed}
    if as_json:
        print_json({"audited": about, **found.to_data()})
    else:
        _tell(found, about)
    if found.refuted:
        raise typer.Exit(1)


def _request(folder: Path | None, given: dict[str, Any], settings: list[str]) -> Any:
    if folder is None:
        known("encoder", [str(given.get("encoder", "public"))], DECLARED)
        return from_wish(Wish(**given, settings=settings))
    if given:
        names = ", ".join(f"--{name}" for name in given)
        raise InvalidInput(f"a run's folder already decides {names}; leave it out, or use --set")
    return from_run(folder, settings)


class Teller:
    """Progress on standard error, with the time that is left; few lines where nobody watches."""

    def __init__(self, *, show: bool) -> None:
        self.live = show and sys.stderr.isatty()
        self.show, self._begin, self._what, self._estimated = show, 0.0, "", False

    def told(self, what: str, done: int, total: int) -> None:
        """One step more."""
        if not self.show:
            return
        if what != self._what:
            self._what, self._begin, self._estimated = what, time.perf_counter(), False
        spent = time.perf_counter() - self._begin
        left = spent / max(done, 1) * (total - done)
        if self.live:
            end = "\n" if done == total else ""
            sys.stderr.write(f"\r{what}: {done} of {total}, {left:.0f} s left   {end}")
            sys.stderr.flush()
        elif not self._estimated and done >= 3 and total > 10:
            self._estimated = True
            sys.stderr.write(f"{what}: {total}, about {left:.0f} s\n")


def _tell(found: Finding, about: dict[str, Any]) -> None:
    claim = found.claim
    console.print(
        f"[bold]audit of {about['mechanism']}[/] on {about['summariser']}, {about['encoder']} encoder, "
        f"{claim.adjacency}, {claim.releases} releases, {about['server']} server"
        f"{'' if found.heard else ' (no release depends on what it says)'}"
    )
    claimed = f"epsilon {claim.epsilon:.4g} at delta {claim.delta:g}" if claim.finite else "nothing finite"
    sure = f"{100 * found.confidence:g} % confidence"
    curve = f"mu {found.mu:.4g}, epsilon {found.on_the_curve:.4g}"
    rows = {
        "claimed": f'{claimed}, "{claim.level}": {found.caveat}',
        "certified": f"epsilon at least {found.certified:.4g} ({sure}, whatever the distribution)",
        "on a Gaussian curve": f"{curve} ({sure}, only if the trade-off is Gaussian)",
        "told apart": f"{found.pair}: {found.words}",
        "attacker": f"{found.attacker}{', training replayed in both worlds' if found.replayed else ''}",
        "runs": f"{found.trials} of each world, {found.judged} of them judged, {found.seconds:.0f} s",
    }
    for name, value in rows.items():
        console.print(f"  {name:<22}{value}", markup=False)
    console.print(found.verdict, markup=False)
