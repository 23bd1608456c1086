"""The sentences: a difference is stated only where its interval excludes zero."""

from tests.unit.report.report_cases import NOTHING, OPEN, record, summary, trial
from vpdr.report.findings import NO_DIFFERENCE, finding_sentences, headline
from vpdr.report.stats import ALL_CLASSES, NEAREST_PROTOTYPE, interval, paired_difference, same_scopes, sign_of_interval


def test_the_sign_of_an_interval() -> None:
    assert sign_of_interval(interval([0.1, 0.11, 0.12])) == 1
    assert sign_of_interval(interval([-0.1, -0.11, -0.12])) == -1
    assert sign_of_interval(interval([-0.1, 0.11, 0.12])) == 0
    assert sign_of_interval(interval([0.0, 0.0])) == 0
    assert sign_of_interval(interval([1e-17, 1e-17])) == 0, "a rounding error is no difference"
    assert sign_of_interval(interval([0.3])) is None


def test_where_intervals_cover_zero_no_difference_is_stated() -> None:
    sentences = list(finding_sentences(summary(trial())["same"], "local"))
    assert sentences[0].startswith("With the framework's own predictor, on all classes (which every client holds here)")
    assert f"{NO_DIFFERENCE}: vpdr-1 and strict-8. Without privacy: {NO_DIFFERENCE}: “none”." in sentences[0]
    assert "higher" not in sentences[0]
    assert "lower" not in sentences[0]


def test_where_intervals_exclude_zero_the_difference_is_stated() -> None:
    own, everything, nearest, *_ = finding_sentences(summary(trial())["apart"], "local")
    assert "lower than local (points): vpdr-1 −9.0 (−11.5 to −6.5)" in own
    assert "lower than local (points): vpdr-1 −11.0" in everything
    assert f"{NO_DIFFERENCE}: strict-8" in everything
    assert "higher than local (points): strict-8 +49.0 (+46.5 to +51.5)" in nearest
    assert "Without privacy: higher than local (points): “none” +59.0" in nearest


def test_the_headline_counts_private_methods_and_names_the_better() -> None:
    text = headline(summary(trial()), "local")
    assert "with the framework's own predictor, 0 of 6 comparisons came out better and 2 worse" in text
    assert "in 4 there is no difference that the seeds can tell" in text
    assert "with the nearest shared prototype, 1 of 4 comparisons came out better (strict-8 in apart)" in text


def test_with_one_seed_no_difference_is_claimed() -> None:
    runs = [run for run in trial() if run[2].seed == 0]
    assert "none is claimed" in headline(summary(runs), "local")
    sentences = list(finding_sentences(summary(runs)["apart"], "local"))
    assert sentences[0].endswith("one seed, so nothing can be told from chance.")


def test_without_baseline_or_private_methods_there_is_nothing_to_judge() -> None:
    assert headline(summary(trial(), None), None).startswith("No baseline")
    assert headline(summary(trial(), "absent"), "absent").startswith("No baseline")
    runs = [("", "local", record(s, 0.6, statement=NOTHING)) for s in (0, 1)]
    runs += [("", "none", record(s, 0.6, statement=OPEN)) for s in (0, 1)]
    assert headline(summary(runs), "local") == "No private method was compared with local."


def test_only_shared_seeds_are_paired() -> None:
    runs = [("", "local", record(s, 0.6, statement=NOTHING)) for s in (0, 1, 2)]
    runs += [("", "igpp", record(s, 0.6 + s / 10)) for s in (1, 2, 3)]
    setting = summary(runs)[""]
    assert paired_difference(setting, "igpp", "local", ALL_CLASSES).values == (0.1 + 0.6 - 0.6, 0.8 - 0.6)
    assert paired_difference(setting, "igpp", "local", NEAREST_PROTOTYPE) is None
    assert paired_difference(setting, "local", "local", ALL_CLASSES) is None


def test_sentences_on_noise_and_selection() -> None:
    sentences = list(finding_sentences(summary(trial())["apart"], "local"))
    assert "The noise is stronger than the released signal (ratio above 1) for vpdr-1 (4)." in sentences
    assert (
        "The selected dimensions are the true ones more often than chance for vpdr-1 (0.31, chance 0.20)." in sentences
    )
    same = list(finding_sentences(summary(trial())["same"], "local"))
    assert any("about as often as chance for vpdr-1" in each for each in same)


def test_settings_are_distinguished_by_their_classes() -> None:
    settings = summary(trial())
    assert same_scopes(settings["same"])
    assert not same_scopes(settings["apart"])
