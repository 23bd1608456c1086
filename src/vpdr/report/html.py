"""A report as one HTML file: no network, no scripts."""

from collections.abc import Mapping, Sequence
from typing import Any

from vpdr.report.appendix import changes, glossary_section, plans_section, rerun_section
from vpdr.report.attack_section import attack_section
from vpdr.report.findings import compared, headline, sentences
from vpdr.report.guarantee import guarantee_section, ledger_section
from vpdr.report.markup import Html, bullets, document, grid, section, tag
from vpdr.report.numbers import DASH, seeds_text
from vpdr.report.palette import Looks, looks
from vpdr.report.pictures import accuracy_pictures, budget_pictures, noise_pictures, run_pictures
from vpdr.report.series import Record, Records, Run, by_setting, noise_ratios
from vpdr.report.tables import comparison_rows

LINKS = {"guarantee": "Guarantee", "plans": "Plans", "rerun": "Run it again", "glossary": "Glossary"}


def page(
    title: str,
    name: str,
    seeds: Sequence[int],
    baseline: str | None,
    summary: Mapping[str, Any],
    records: Sequence[Run],
) -> str:
    """The comparison of several runs; `summary` is what `summarise_runs` makes of `records`."""
    settings = by_setting(records)
    baseline = baseline if any(baseline in methods for methods in settings.values()) else None
    methods = list(dict.fromkeys(method for _, method, _ in records))
    styles = looks(methods, baseline)
    every = [record for _, _, record in records]
    links = {f"setting-{index}": _named(setting) for index, setting in enumerate(settings)}
    parts = [
        tag("h1", title),
        tag("p", compared(summary, baseline, len(seeds), every)),
        tag("p", tag("strong", headline(summary, baseline))),
        _contents({**links, **LINKS}),
    ]
    for identifier, (setting, runs) in zip(links, settings.items(), strict=True):
        others = [next(iter(other.values()))[0]["plan"] for key, other in settings.items() if key != setting]
        apart = changes(next(iter(runs.values()))[0]["plan"], others)
        body = setting_parts(summary[setting], runs, baseline, styles, identifier)
        intro = tag("p", f"What sets it apart: {apart}.", class_="small") if apart else Html("")
        parts.append(section(identifier, _named(setting), intro, *body))
    command = f"vpdr run {name} --seeds {seeds_text(list(seeds))}"
    parts += [
        guarantee_section(settings, budget_pictures(settings, styles)),
        plans_section(settings, baseline),
        rerun_section(command, every),
        glossary_section(),
    ]
    return document(title, *parts)


def _named(setting: str) -> str:
    return f"Setting “{setting}”" if setting else "Results"


def _contents(links: Mapping[str, str]) -> Html:
    return tag("nav", *(tag("a", text, href=f"#{identifier}") for identifier, text in links.items()))


def setting_parts(
    summary: Mapping[str, Any], runs: Records, baseline: str | None, styles: Looks, key: str
) -> list[Html]:
    """Findings, table and figures of one setting."""
    table = comparison_rows(summary, baseline)
    header = [tag("th", tag("abbr", c.label, title=c.meaning), scope="col") for c in table.columns]
    rows = [[cell.text for cell in row] for row in table.rows]
    note = "Accuracies are means over clients and seeds ± half of the 95 % interval over seeds. "
    return [
        bullets(sentences(summary, baseline)),
        grid(header, rows),
        tag("p", note, unbounded(runs), class_="small"),
        *accuracy_pictures(summary, runs, baseline, styles, key),
        *noise_pictures(runs, styles, key),
    ]


def unbounded(runs: Records) -> str:
    """Which methods had releases without a finite noise-to-signal ratio."""
    found = {method: noise_ratios(records) for method, records in runs.items()}
    told = [f"{m} {each.infinite} of {each.releases}" for m, each in found.items() if each.infinite]
    if not told:
        return ""
    return f"Releases whose noise-to-signal ratio is infinite, left out of its mean: {', '.join(told)}."


def single_page(record: Record, sheets: Sequence[bytes] = ()) -> str:
    """One run by itself: what came out, round by round, what attacks found, and its ledgers."""
    title, runs = f"{record['name']}, seed {record['seed']}", {"": [record]}
    styles = looks([""], None)
    attacks = {"attacks": "Attacks"} if record.get("attacks") else {}
    text = f"One run of {len(record['rounds'])} rounds with {len(record['clients'])} clients: "
    return document(
        title,
        tag("h1", title),
        tag("p", text, record["privacy"]["sentence"], "."),
        _contents({"results": "Results", **attacks, **LINKS, "ledger": "Ledgers"}),
        section(
            "results",
            "Results",
            final_table(record),
            *run_pictures(record),
            *noise_pictures(runs, styles, "run"),
        ),
        attack_section(record, sheets),
        guarantee_section({"": runs}, budget_pictures({"": runs}, styles)),
        ledger_section(record),
        plans_section({"": runs}, None),
        rerun_section("vpdr run plan.toml   # the file beside the record", [record]),
        glossary_section(),
    )


def final_table(record: Record) -> Html:
    """Final accuracies by client and way to predict."""
    names = ("framework", "head", "soft_clipped", "nearest", "nearest_cosine", "fused")
    keys = [(scope, n) for scope in ("own", "all") for n in names if n in record["final"].get(scope, {})]
    rows = []
    for client in [*record["clients"], None]:
        found = [record["final"][scope][n] for scope, n in keys]
        values = [each["average"] if client is None else each["clients"].get(client) for each in found]
        rows.append([client or "average", *(DASH if v is None else f"{100 * v:.1f}" for v in values)])
    return grid(("Client", *(f"{n.replace('_', ' ')}, {scope}, %" for scope, n in keys)), rows)
