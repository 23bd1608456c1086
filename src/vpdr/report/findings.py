"""The results of a comparison in sentences; a difference is stated only if its interval excludes zero."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from vpdr.privacy import GuaranteeLevel, Ledger, NoiseOrigin, accountants
from vpdr.records import PrivacyStatement, RunRecord
from vpdr.report import format as fmt
from vpdr.report import stats
from vpdr.report.stats import Interval, SettingSummary
from vpdr.report.tables import Table

SettingSummaries = Mapping[str, SettingSummary]
NO_DIFFERENCE = "no difference that the seeds can tell"
OWN_PREDICTOR, SHARED_PROTOTYPE = "the framework's own predictor", "the nearest shared prototype"


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """One method against the baseline on one metric in one setting."""

    method: str
    difference: Interval
    sign: int | None

    @property
    def text(self) -> str:
        return f"{self.method} {fmt.points_with_interval(self.difference)}"


def compare_with_baseline(
    setting: SettingSummary, baseline: str | None, metric: str, *, private_methods: bool
) -> list[BaselineComparison]:
    """All methods that released something, either those under a budget or those without privacy."""
    comparisons = []
    for method, summary in setting.methods.items():
        difference = stats.paired_difference(setting, method, baseline, metric)
        privacy = summary.privacy
        if difference and stats.has_release(privacy) and stats.has_private_release(privacy) is private_methods:
            name = method if private_methods else f"“{method}”"  # a method may be called none
            comparisons.append(BaselineComparison(name, difference, stats.sign_of_interval(difference)))
    return comparisons


def metrics_to_compare(setting: SettingSummary) -> dict[str, str]:
    """The metrics with their names in sentences; own and all classes once if they are the same."""
    if not stats.same_scopes(setting):
        return fmt.METRIC_SENTENCES
    return {
        stats.ALL_CLASSES: f"{fmt.METRIC_SENTENCES[stats.ALL_CLASSES]} (which every client holds here)",
        stats.NEAREST_PROTOTYPE: fmt.METRIC_SENTENCES[stats.NEAREST_PROTOTYPE],
    }


def headline(summary: SettingSummaries, baseline: str | None) -> str:
    """How many comparisons of private methods are better, worse or undecided, and which are better."""
    if baseline is None or not any(baseline in setting.methods for setting in summary.values()):
        return "No baseline was run, so that no differences are judged here."
    comparisons: dict[str, list[tuple[str, BaselineComparison]]] = {OWN_PREDICTOR: [], SHARED_PROTOTYPE: []}
    for name, setting in summary.items():
        for metric in metrics_to_compare(setting):
            predictor = SHARED_PROTOTYPE if metric == stats.NEAREST_PROTOTYPE else OWN_PREDICTOR
            against_baseline = compare_with_baseline(setting, baseline, metric, private_methods=True)
            comparisons[predictor] += [(name, each) for each in against_baseline]
    if not any(comparisons.values()):
        return f"No private method was compared with {baseline}."
    if all(each.sign is None for results in comparisons.values() for _, each in results):
        return f"With one seed, differences to {baseline} cannot be told from chance: none is claimed."
    counts = []
    for predictor, results in comparisons.items():
        if not results:
            continue
        better = [f"{each.method} in {name}" if name else each.method for name, each in results if each.sign == 1]
        worse = sum(each.sign == -1 for _, each in results)
        names = f" ({fmt.join_and(list(dict.fromkeys(better)))})" if better else ""
        counts.append(
            f"with {predictor}, {len(better)} of {len(results)} comparisons came out better{names} and {worse} worse "
            f"with an interval that excludes zero; in {len(results) - len(better) - worse} there is {NO_DIFFERENCE}"
        )
    return (
        f"Private methods against {baseline}: {'; '.join(counts)}. "
        "About one in twenty intervals excludes zero by chance alone."
    )


def finding_sentences(setting: SettingSummary, baseline: str | None) -> Iterator[str]:
    """The findings of one setting."""
    for metric, name in metrics_to_compare(setting).items():
        private, public = (
            _describe_comparisons(setting, baseline, metric, private_methods=private) for private in (True, False)
        )
        parts = [private] if private else []
        parts += [f"Without privacy: {public}"] if public else []
        if parts:
            yield f"{name}: {'. '.join(parts)}."
    noisy = []  # the noise is stronger than the released signal
    selections: dict[str, list[str]] = {"more often than": [], "less often than": [], "about as often as": []}
    for method, summary in setting.methods.items():
        ratio, overlap, chance = (summary.metrics.get(name) for name in ("noise_to_signal", "overlap", "chance"))
        if ratio and stats.has_private_release(summary.privacy) and ratio.mean > 1:
            noisy.append(f"{method} ({fmt.three_digits(ratio.mean)})")
        if overlap and chance and overlap.low is not None and overlap.high is not None:
            above, below = overlap.low > chance.mean, overlap.high < chance.mean
            words = "more often than" if above else "less often than" if below else "about as often as"
            selections[words].append(f"{method} ({overlap.mean:.2f}, chance {chance.mean:.2f})")
    if noisy:
        yield f"The noise is stronger than the released signal (ratio above 1) for {fmt.join_and(noisy)}."
    parts = [f"{words} chance for {fmt.join_and(members)}" for words, members in selections.items() if members]
    if parts:
        yield f"The selected dimensions are the true ones {'; '.join(parts)}."


def _describe_comparisons(setting: SettingSummary, baseline: str | None, metric: str, *, private_methods: bool) -> str:
    comparisons = compare_with_baseline(setting, baseline, metric, private_methods=private_methods)
    if comparisons and all(each.sign is None for each in comparisons):
        return "one seed, so nothing can be told from chance"
    groups = {
        f"higher than {baseline} (points)": [each.text for each in comparisons if each.sign == 1],
        f"lower than {baseline} (points)": [each.text for each in comparisons if each.sign == -1],
        NO_DIFFERENCE: [each.method for each in comparisons if each.sign in (0, None)],
    }
    return "; ".join(f"{name}: {fmt.join_and(members)}" for name, members in groups.items() if members)


def describe_comparison(
    summary: SettingSummaries, baseline: str | None, seeds: int, records: Sequence[RunRecord]
) -> str:
    """How many methods, settings, seeds and runs there are, and how methods are compared."""
    methods = dict.fromkeys(method for setting in summary.values() for method in setting.methods)
    runs = sum(len(each.seeds) for setting in summary.values() for each in setting.methods.values())
    rounds = fmt.range_noun([len(record.rounds) for record in records], "round")
    clients = fmt.range_noun([len(record.clients) for record in records], "client")
    text = (
        f"{fmt.count_noun(len(methods), 'method')} in {fmt.count_noun(len(summary), 'setting')} with "
        f"{fmt.count_noun(seeds, 'seed')}: {fmt.count_noun(runs, 'run')} of {rounds} with {clients}."
    )
    if baseline is None:
        return text
    return (
        f"{text} Each method is compared with {baseline}, seed by seed; a difference counts where its 95 % "
        "interval excludes zero. The nearest shared prototype, which a method without sharing does not "
        f"have, is compared with the predictions of {baseline} on all classes."
    )


LEVEL_MEANINGS: dict[str, str] = {
    GuaranteeLevel.PROVED: "holds end to end for the stated adjacency.",
    GuaranteeLevel.CONDITIONAL: "holds only if the personal encoder is taken as fixed, as if not trained on the data.",
    GuaranteeLevel.AS_PUBLISHED: "the claim of the paper; the sensitivity behind it is not a bound.",
    GuaranteeLevel.NONE: "the prototypes went out as they were; no finite ε describes them.",
    fmt.NOTHING_RELEASED: "no client sent anything, so that there is nothing to protect.",
}
SEEDED_NOISE = (
    "from the seed: whoever knows it can repeat the noise, so that this is a simulation and not a private run"
)
SYSTEM_NOISE = "from the operating system: nobody can repeat it"


@dataclass(frozen=True, kw_only=True, slots=True)
class GuaranteeSection:
    """All privacy statements, the meaning of their levels, and what none of them covers."""

    is_simulation: bool
    table: Table
    levels: Mapping[str, str]
    caveats: Sequence[str]
    terms: Mapping[str, Mapping[str, str | Sequence[str]]]


def guarantee_section(settings: Mapping[str, stats.RecordsByMethod]) -> GuaranteeSection:
    """The section of a report about these runs."""
    statements = statements_by_method(settings)
    levels = {fmt.level_label(privacy) for privacy in statements.values()}
    rows = [[name, fmt.level_label(privacy), privacy.sentence] for name, privacy in statements.items()]
    caveats: dict[str, list[str]] = {}  # every caveat once, with the methods that it concerns
    for name, privacy in statements.items():
        for caveat in privacy.not_covered:
            caveats.setdefault(caveat, []).append(name)
    return GuaranteeSection(
        is_simulation=any(
            privacy.noise == NoiseOrigin.SEEDED and stats.has_private_release(privacy)
            for privacy in statements.values()
        ),
        table=Table.from_texts(["Method", "Guarantee", "Statement"], rows),
        levels={level: meaning for level, meaning in LEVEL_MEANINGS.items() if level in levels},
        caveats=[
            caveat if len(names) == len(statements) else f"{caveat} ({', '.join(names)})"
            for caveat, names in caveats.items()
        ],
        terms={f"{name}: {fmt.level_label(p)}": statement_terms(p) for name, p in statements.items()},
    )


def statements_by_method(settings: Mapping[str, stats.RecordsByMethod]) -> dict[str, PrivacyStatement]:
    """The weakest statement of each method over its seeds; one per setting only where settings differ."""
    groups: dict[str, dict[str, tuple[PrivacyStatement, list[str]]]] = {}
    for setting, methods in settings.items():
        for method, records in methods.items():
            privacy = max((record.privacy for record in records), key=_epsilon_spent)
            terms = {**asdict(privacy), "epsilon_spent": f"{_epsilon_spent(privacy):.4g}"}
            key = json.dumps(terms, sort_keys=True)
            groups.setdefault(method, {}).setdefault(key, (privacy, []))[1].append(setting)
    return {
        fmt.method_name(method) + (f" ({', '.join(names)})" if len(statements) > 1 else ""): privacy
        for method, statements in groups.items()
        for privacy, names in statements.values()
    }


def _epsilon_spent(privacy: PrivacyStatement) -> float:
    return float("inf") if privacy.epsilon_spent is None else privacy.epsilon_spent


def statement_terms(privacy: PrivacyStatement) -> dict[str, str | Sequence[str]]:
    """Every field of one privacy statement."""
    spent, level = privacy.epsilon_spent, fmt.level_label(privacy)
    releases = ", ".join(f"{client} {count}" for client, count in privacy.releases.items())
    steps = ", ".join(f"{client} {count}" for client, count in (privacy.training_steps or {}).items())
    events = ", ".join(f"{count} {kind}" for kind, count in privacy.events.items())
    noise = SEEDED_NOISE if privacy.noise == NoiseOrigin.SEEDED else SYSTEM_NOISE
    return {
        "Statement": privacy.sentence,
        "Level": f"{level}: {LEVEL_MEANINGS.get(level, '')}",
        "Unit": privacy.unit,
        "Dataset": privacy.dataset or fmt.DASH,
        "Adjacency": privacy.adjacency,
        "Encoder": privacy.encoder,
        "Class counts": privacy.counts,
        "Accountant": privacy.accountant,
        "Events": events or "none",
        "Releases by client": releases,
        "Steps of private training": steps or "none",
        "ε budget": fmt.short_number(privacy.epsilon_budget) if stats.has_private_release(privacy) else fmt.DASH,
        "ε spent": fmt.DASH if spent is None else f"{fmt.four_digits(spent)} (the client that spent most)",
        "δ": fmt.short_number(privacy.delta),
        "Noise": noise if stats.has_private_release(privacy) else "none was added",
        "Not covered": privacy.not_covered,
    }


def ledger_tables(record: RunRecord) -> dict[str, Table]:
    """The ledger of every client, by client and number of releases."""
    spent = {each.round: each.clients for each in record.rounds}
    tables = {}
    for client, state in record.ledgers.items():
        ledger, rows = Ledger.from_state_dict(state), []
        for entry in ledger.entries:
            texts = []
            for event in map(accountants.event_to_dict, entry.receipt.events):
                numbers = [
                    f"{key} {fmt.four_digits(value)}" for key, value in event.items() if isinstance(value, float)
                ]
                texts.append(" ".join([str(event["kind"]), *numbers]))
            terms = ", ".join(f"{key} {value}" for key, value in asdict(entry.receipt.terms).items())
            epsilon = spent[entry.round][client].epsilon if client in spent.get(entry.round, {}) else None
            events = "; ".join(texts) if entry.is_release else f"{entry.receipt.purpose}: {'; '.join(texts)}"
            rows.append([str(entry.round), events, terms, fmt.four_digits(epsilon)])
        table = Table.from_texts(["Round", "Events", "Terms", "ε spent so far"], rows)
        tables[f"{client}: {fmt.count_noun(len(ledger.releases), 'release')}"] = table
    return tables
