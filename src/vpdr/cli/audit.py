"""`vpdr attack`, `vpdr audit` and `vpdr doctor`: attacks on a finished run, bounds on ε, and a self-test."""

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from vpdr import api, audits
from vpdr.attacks import AttackCallbacks, parse_attack_config
from vpdr.cli import output
from vpdr.config.rules import encoder_setting
from vpdr.privacy.guarantee import DECLARABLE_ENCODERS, Adjacency, declared_encoder
from vpdr.records import AttackResult
from vpdr.report import format as fmt
from vpdr.report import tables
from vpdr.validation import InvalidInput, check_known

IS_HOSTILE = {"honest": False, "hostile": True}  # by the value of --server
HOSTILE_ROUNDS = 5  # each false broadcast reaches a release, and rapp makes one stage of each release


def attack(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.", metavar="RUN_DIR")],
    kinds: Annotated[
        str, typer.Option("--attack", metavar="fsh,mia", help="Attacks: mia (membership), fsh (reconstruction).")
    ] = "mia",
    rounds: output.AttackRoundsOption = None,
    phi: output.AttackEncoderOption = "client",
    stronger: Annotated[bool, typer.Option(help="Also run likelihood-ratio membership attacks.")] = True,
    steps: output.AttackStepsOption = 10_000,
    device: output.AttackDeviceOption = "cpu",
    quiet: output.QuietOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Attack the uploads of a finished run; writes attacks.json, figures and a new report.html.

    The run is trained again with the saved uploads. Noise from the operating system cannot be drawn again, so
    such a run needs its saved uploads. Exit codes: 0 done, 2 wrong input.
    """
    config = parse_attack_config(
        kinds, rounds, adversary_encoder=phi, likelihood_ratio=stronger, steps=steps, device=device
    )
    show = not quiet and not as_json
    with output.ProgressBars(show=show) as progress:
        callbacks = AttackCallbacks(on_message=progress.print_line, progress=progress.update)
        content = api.attack(run, config, progress=progress.update, callbacks=callbacks)
    if as_json:
        output.print_json(content, out=str(run))
    elif show:
        print_attacks(content.attacks)
        output.console.print(f"results: {run / 'attacks.json'}   report: {run / 'report.html'}")


def print_attacks(attacks: Mapping[str, AttackResult]) -> None:
    """Print one table per attack: mean and spread over rounds, chance, and the difference to chance."""
    for kind, result in attacks.items():
        output.console.print(tables.short_attack_table(kind, result).to_text(output.console.width))
        for note in tables.attack_notes(result):
            output.console.print(f"  - {note}")


def run_audit(  # noqa: PLR0913 - one parameter per option of the command
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN_DIR]", help="The directory of a finished run; audits what it was configured to do."
        ),
    ] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="The mechanism: none, igpp, vpp, rapp or one of a plug-in (igpp if not given).")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The claimed ε of all rounds together (1 if not given).")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of the claim (1e-5 if not given).")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Number of releases that share the budget (20, with a hostile server 5).")
    ] = None,
    summariser: Annotated[
        str | None, typer.Option(help="means, sums, kmeans or finch (means, or sums if class counts are private).")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help=f"{', '.join(DECLARABLE_ENCODERS)} (public if not given).")
    ] = None,
    adjacency: Annotated[
        str | None, typer.Option(help=f"{', '.join(Adjacency)} (replace-same-label if not given).")
    ] = None,
    server: Annotated[str, typer.Option(help="honest, or hostile: a server that sends false broadcasts.")] = "honest",
    pair: Annotated[str, typer.Option(help="Audit only this pair of datasets; the easiest pair if not given.")] = "",
    trials: Annotated[
        int, typer.Option(help="Runs on each of the two datasets; 0 is as many as fit into 25 seconds.")
    ] = 0,
    confidence: Annotated[float, typer.Option(help="Confidence of the bounds, at least 0.5 and below 1.")] = 0.95,
    seed: Annotated[
        int | None, typer.Option(help="Seed for a repeatable audit; noise of the system if not given.")
    ] = None,
    settings: output.SettingsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Certify a lower bound on ε of a mechanism or a run, and compare it with the claim.

    The audit runs the mechanism many times on two adjacent datasets, and attacks each release to decide which
    dataset it came from. Exit codes: 0 not refuted, 1 the claim is refuted, 2 wrong input.
    """
    check_known("server", [server], IS_HOSTILE)
    options: dict[str, Any] = {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "delta": delta,
        "rounds": rounds,
        "summariser": summariser,
        "encoder": encoder if encoder is None or folder is not None else declared_encoder(encoder),
        "adjacency": adjacency,
    }
    options = {name: value for name, value in options.items() if value is not None}
    if folder is None:
        if IS_HOSTILE[server]:
            options.setdefault("rounds", HOSTILE_ROUNDS)
        request = audits.request_from_options(audits.AuditOptions(**options, settings=settings or []))
    elif options:
        names = ", ".join(f"--{name}" for name in options)
        raise InvalidInput(f"the run already decides {names}; leave it out, or use --set")
    else:
        request = audits.request_from_run(folder, settings or [])
    config = audits.AuditConfig(
        trials=trials,
        confidence=confidence,
        noise=audits.make_noise_factory(seed),
        lying_server=IS_HOSTILE[server],
        pair=pair,
        progress=ProgressPrinter(show=not as_json).update,
    )
    result = audits.audit(request.target, request.claim, config)
    if as_json:
        description = {**request.target.describe(), "server": server, "seed": seed}
        output.print_json({"audited": description, **result.to_data()})
    else:
        _print_result(result, request.target, server)
    if result.refuted:
        raise typer.Exit(1)


class ProgressPrinter:
    """Progress with the remaining time on standard error; one line per phase without a terminal."""

    def __init__(self, *, show: bool) -> None:
        self.show, self._begin, self._phase, self._estimated = show, 0.0, "", False

    def update(self, phase: str, done: int, total: int) -> None:
        if not self.show:
            return
        if phase != self._phase:
            self._phase, self._begin, self._estimated = phase, time.perf_counter(), False
        remaining = (time.perf_counter() - self._begin) / max(done, 1) * (total - done)
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            sys.stderr.write(f"\r{phase}: {done} of {total}, {remaining:.0f} s left   {end}")
            sys.stderr.flush()
        elif not self._estimated and done >= 3 and total > 10:
            self._estimated = True
            sys.stderr.write(f"{phase}: {total}, about {remaining:.0f} s\n")


def _print_result(result: audits.AuditResult, target: audits.AuditTarget, server: str) -> None:
    claim, release = result.claim, target.client.release_config
    independent = "" if result.depends_on_server else " (no release depends on what it says)"
    output.console.print(
        f"audit of {target.run_config.mechanism.kind} on {type(release.summariser).__name__}, "
        f"{encoder_setting(release.encoder_kind)} encoder, {claim.adjacency}, {claim.releases} releases, "
        f"{server} server{independent}"
    )
    claimed = "nothing finite"
    if claim.is_finite:
        claimed = f"epsilon {fmt.four_digits(claim.epsilon)} at delta {fmt.short_number(claim.delta)}"
    confidence = f"{fmt.short_number(100 * result.confidence)} % confidence"
    certified, gaussian = fmt.four_digits(result.certified_epsilon), fmt.four_digits(result.epsilon_if_gaussian)
    replayed = ", training replayed in both worlds" if result.training_replayed else ""
    fields = {
        "claimed": f'{claimed}, "{claim.level}": {result.caveat}',
        "certified": f"epsilon at least {certified} ({confidence}, whatever the distribution)",
        "on a Gaussian curve": f"mu {fmt.four_digits(result.mu)}, epsilon {gaussian} "
        f"({confidence}, only if the trade-off is Gaussian)",
        "pair of datasets": f"{result.pair}: {result.pair_description}",
        "attacker": f"{result.attacker}{replayed}",
        "runs": f"{result.trials} of each world, {result.certifying_trials} of them for the bound, "
        f"{result.seconds:.0f} s",
    }
    output.console.print(tables.Table.from_fields({f"  {name}": text for name, text in fields.items()}).to_text())
    output.console.print(result.verdict)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as one JSON object.")] = False,
) -> None:
    """Test that this installation does what the guarantees rely on.

    Tests sensitivities, noise, encoders, uploads, the ledger and the accountants. Exit codes: 0 all tests
    pass, 1 a test fails.
    """
    begin, results = time.perf_counter(), []
    for result in audits.run_selftests():
        results.append(result)
        if not as_json:
            state = "ok    " if result.ok else "FAILED"
            output.console.print(f"{state}  {result.name:<22}{result.message}")
    seconds, healthy = time.perf_counter() - begin, all(result.ok for result in results)
    if as_json:
        checks = [{"name": each.name, "ok": each.ok, "words": each.message} for each in results]
        output.print_json({"healthy": healthy, "checks": checks, "seconds": seconds})
    else:
        output.console.print(f"{'healthy' if healthy else 'not healthy'}, {seconds:.0f} s")
    if not healthy:
        raise typer.Exit(1)
