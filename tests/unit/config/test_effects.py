"""Every setting counts or is refused, for each way in which it can be given."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import vpdr
from tests.unit.federation.conftest import TINY, timeless
from vpdr.cli import main
from vpdr.config import RunConfig, effects, load_experiment, resolve
from vpdr.config.config import SettingInfo, all_settings
from vpdr.config.load import ExperimentOptions, read_builtin
from vpdr.io import dump_toml
from vpdr.validation import InvalidInput, deep_merge

WITHOUT_EFFECT = [
    (("benchmark.concentration=0.5",), "benchmark.concentration", "benchmark.skew=label or pooled"),
    (("mechanism.kind=igpp", "mechanism.share=0.3"), "mechanism.share", "mechanism.kind=vpp"),
    (
        ("framework.kind=fedpcl", "framework.fedproto.weight=0.5"),
        "framework.fedproto.weight",
        "framework.kind=fedproto",
    ),
    (("benchmark.root=/data",), "benchmark.root", "benchmark.kind=digits"),
    (("mechanism.kind=vpp", "mechanism.selection=random", "mechanism.share=0.5"), "mechanism.share", "laplace or once"),
    (("mechanism.kind=igpp", "regulariser.softness=0.2"), "regulariser.softness", "regulariser.kind=dcr"),
    (("train.private_share=0.2",), "train.private_share", "train.privacy=dpsgd"),
    (("mechanism.kind=none", "budget.epsilon=8"), "budget.epsilon", "mechanism.kind=igpp or vpp or rapp"),
    (("framework.kind=local", "budget.epsilon=8"), "budget.epsilon", "framework.kind=fedproto"),
    (("framework.kind=fedpcl", "weights.kind=client_size"), "weights.kind", "framework.kind=fedproto"),
    (("benchmark.clients=3",), "benchmark.clients", "benchmark.skew=pooled"),
    (("benchmark.kind=cifar10", "benchmark.test_fraction=0.3"), "benchmark.test_fraction", "benchmark.kind=quickstart"),
    (("benchmark.kind=synthetic", "run.device=cuda"), "run.device", "benchmark.kind=quickstart"),
    (("benchmark.manifest=split.json", "benchmark.test=local"), "benchmark.test", "without benchmark.manifest"),
    (("regulariser.ema_while_waiting=false",), "regulariser.ema_while_waiting", "teacher_init=after_round_1"),
    (("model.family=Lite3", "model.hidden=64"), "model.hidden", "without model.family"),
]


@pytest.mark.parametrize(("settings", "path", "remedy"), WITHOUT_EFFECT)
def test_a_setting_without_effect_is_refused_in_one_line_with_what_would_make_it_count(
    settings, path, remedy, capsys, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = [part for setting in settings for part in ("--set", setting)]
    assert main(["run", "paper", *options]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"error: {path} has no effect")
    assert remedy in message
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # before anything is loaded or written


def test_it_is_refused_wherever_it_is_given(tmp_path: Path) -> None:
    tables = {"mechanism": {"kind": "igpp", "share": 0.3}}
    file = tmp_path / "mine.toml"
    method = 'methods = ["mine", "vpdr"]\n[custom_methods.mine]\nmechanism = { kind = "igpp", share = 0.3 }\n'
    scenario = "[scenarios.a]\nbenchmark = { concentration = 0.7 }\n"
    for give in (
        lambda: vpdr.load_config("paper", "mechanism.kind=igpp", "mechanism.share=0.3"),
        lambda: vpdr.load_config(tables),
        lambda: RunConfig.from_dict(tables),
        lambda: load_experiment(str(_written(file, dump_toml(tables)))),
        lambda: load_experiment(str(_written(file, method))),  # that it counts in vpdr is no help to igpp
        lambda: load_experiment(str(_written(file, scenario))),
    ):
        with pytest.raises(InvalidInput, match=r"(mechanism\.share|benchmark\.concentration) has no effect"):
            give()


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_in_a_comparison_it_must_count_in_one_run() -> None:
    options = ExperimentOptions(settings=["mechanism.keep=0.3", "regulariser.weight=0.1"], methods="igpp,vpdr")
    assert load_experiment("paper", options).method_configs[1].config.mechanism.keep == 0.3
    with pytest.raises(InvalidInput, match=r"mechanism\.keep has no effect"):
        load_experiment("paper", ExperimentOptions(settings=["mechanism.keep=0.3"], methods="local,igpp"))


def test_a_value_that_the_plan_has_anyway_is_harmless() -> None:
    assert vpdr.load_config("paper", "mechanism.kind=igpp", "mechanism.share=0.1").mechanism.share == 0.1
    assert vpdr.load_config("authors", "mechanism.kind=igpp", "mechanism.keep=0.3").mechanism.keep == 0.3
    with pytest.raises(InvalidInput, match=r"mechanism\.keep has no effect"):
        vpdr.load_config("authors", "mechanism.kind=igpp", "mechanism.keep=0.2")


def test_a_stored_plan_runs_again_with_all_that_it_holds(tmp_path: Path, caplog) -> None:
    options = ExperimentOptions(settings=["mechanism.keep=0.35"], methods="igpp,vpdr")
    config = load_experiment("paper", options).method_configs[0].config  # igpp, which does not read its keep
    stored = _written(tmp_path / "plan.toml", dump_toml(config.to_plan()))
    again = load_experiment(str(stored)).method_configs[0].config
    assert again == config
    assert again.config_hash == config.config_hash
    assert caplog.messages == []
    edited = _written(
        tmp_path / "edited.toml", stored.read_text().replace("concentration = 0.1", "concentration = 0.7")
    )
    with pytest.raises(InvalidInput, match=r"benchmark\.concentration has no effect"):
        load_experiment(str(edited))
    moved = _written(tmp_path / "moved.toml", stored.read_text().replace('root = ""', 'root = "/data"'))
    with pytest.raises(InvalidInput, match=r"benchmark\.root has no effect"):
        load_experiment(str(moved))
    with pytest.raises(InvalidInput, match=r"mechanism\.share has no effect"):
        load_experiment(str(stored), ExperimentOptions(settings=["mechanism.share=0.4"]))
    old = _written(tmp_path / "old.toml", dump_toml(config.to_dict()))  # version 0.1 stored no identity
    assert load_experiment(str(old)).method_configs[0].config.config_hash == config.config_hash
    assert "no effect of mechanism.keep" in caplog.messages[0]


def test_a_stored_plan_of_another_preset_can_be_edited(tmp_path: Path) -> None:
    config = vpdr.load_config("authors", "mechanism.kind=igpp")
    text = dump_toml(config.to_plan()).replace("rounds = 20", "rounds = 5")
    assert load_experiment(str(_written(tmp_path / "plan.toml", text))).method_configs[0].config.run.rounds == 5


@pytest.mark.parametrize("path", [each.path for each in all_settings()])
def test_every_setting_counts_somewhere(path: str) -> None:
    """A new setting that nothing reads fails here: read it in `vpdr.config.resolve`."""
    config = RunConfig()
    assert path in effects.settings_read(config) or effects._remedies(path, config), path


def _alternatives(setting: SettingInfo, rng: random.Random) -> Any:
    """Another value than the default, which most configs accept."""
    if setting.choices:
        return rng.choice([each for each in setting.choices if each != setting.default])
    special = {
        "run.name": "other",
        "run.device": "cuda",
        "benchmark.root": "/data",
        "benchmark.domains": ["mnist", "optical"],
        "benchmark.manifest": "split.json",
        "model.weights": "random",
        "mechanism.stages": "50,50",
        "participation.schedule": {"mnist": [1]},
        "participation.fraction": 0.5,
        "benchmark.per_domain": 3,
    }
    if setting.path in special:
        return special[setting.path]
    if isinstance(setting.default, int):
        return setting.default + rng.randint(2, 4) if setting.default else rng.choice([3, 7, 33])
    return setting.default * 0.7 if setting.default else 0.2


def _random_plan(rng: random.Random) -> dict[str, Any]:
    """A config that is accepted, with some of the settings that have few values changed."""
    kinds = [each for each in all_settings() if each.choices]
    while True:
        plan: dict[str, Any] = {"run": {"rounds": 6}}
        for each in rng.sample(kinds, rng.randint(0, 4)):
            plan = deep_merge(plan, {each.section: {each.name: rng.choice(each.choices)}})
        try:
            return RunConfig.from_tables(plan).to_dict()
        except InvalidInput:
            continue


def _as_data(value: Any) -> Any:
    """The parts of a run as nested data that can be compared."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: _as_data(getattr(value, each.name)) for each in dataclasses.fields(value)}
        return [type(value).__name__, fields]
    if isinstance(value, dict):
        return {str(key): _as_data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_data(inner) for inner in value]
    if isinstance(value, torch.Generator):
        return "generator"
    return str(value)


@pytest.mark.parametrize("case", range(50))
def test_a_random_setting_is_refused_or_changes_the_run(case: int) -> None:
    rng = random.Random(case)
    plan, setting = _random_plan(rng), rng.choice(all_settings())
    value = _alternatives(setting, rng)
    while plan[setting.section][setting.name] == value:
        setting = rng.choice(all_settings())
        value = _alternatives(setting, rng)
    before = _as_data(resolve.resolve(RunConfig.from_dict(plan)))
    changed = deep_merge(plan, {setting.section: {setting.name: value}})
    config, refusal = None, ""
    try:
        config = RunConfig.from_dict(changed, below=plan)
    except InvalidInput as error:
        refusal = str(error)
    if config is None:
        assert refusal.count("\n") == 0
    else:
        assert _as_data(resolve.resolve(config)) != before, f"{setting.path}={value} changes nothing in {plan}"


COUNTING = [
    ("benchmark.skew=label", "benchmark.concentration=5"),
    ("mechanism.kind=vpp", "mechanism.keep=0.4"),
    ("mechanism.kind=igpp", "release.count=1"),
    ("mechanism.kind=igpp", "participation.fraction=0.5"),
    ("mechanism.kind=none", "benchmark.skew=label", "weights.kind=class_count"),
    ("framework.kind=fedpcl", "mechanism.kind=none", "framework.fedpcl.temperature=1.0"),
]


@pytest.mark.parametrize("settings", COUNTING)
def test_a_setting_that_is_accepted_changes_the_record(settings) -> None:
    *others, last = settings
    records = [vpdr.run(vpdr.load_config("paper", *TINY, *given)) for given in (others, settings)]
    before, after = (timeless(record.rounds) for record in records)
    assert before != after, last


def test_what_is_refused_would_have_changed_nothing() -> None:
    tables = read_builtin("presets", "paper")
    plain = vpdr.load_config("paper", *TINY, "mechanism.kind=igpp")
    given = deep_merge(plain.to_dict(), {"mechanism": {"share": 0.4, "keep": 0.4}, "benchmark": {"concentration": 9.0}})
    with pytest.raises(InvalidInput, match="has no effect"):
        RunConfig.from_dict(given, below=deep_merge(tables, plain.to_dict()))
    first, second = vpdr.run(plain), vpdr.run(RunConfig.from_tables(given))
    assert timeless(first.rounds) == timeless(second.rounds)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mechanism.epsilon=1", "unknown setting in [mechanism]: 'epsilon'; did you mean 'budget.epsilon'?"),
        ("rounds=5", "--set needs section.key=value, got 'rounds=5'; did you mean 'run.rounds'?"),
        ("lr=0.1", "did you mean 'train.lr'?"),
        ("alpha=0.5", "did you mean 'benchmark.concentration'?"),
        ("train.learning_rate=0.1", "did you mean 'train.lr'?"),
        ("benchmark.alpha=0.5", "did you mean 'benchmark.concentration'?"),
        ("run.dropout=0.5", "did you mean 'model.dropout' or 'participation.dropout'?"),
        ("budget.epsilonn=1", "did you mean 'epsilon'?"),
        ("seeds.x=1", "'seeds' is no section but a key of files"),
    ],
)
def test_suggestions_are_by_meaning_as_well_as_spelling(text, words) -> None:
    with pytest.raises(InvalidInput) as caught:
        vpdr.load_config("paper", text)
    assert words in str(caught.value)
    assert str(caught.value).count("did you mean") <= 1


def test_a_synonym_belongs_to_one_setting_or_is_no_name_of_another() -> None:
    names = {each.name for each in all_settings()}
    sections = {each.section for each in all_settings()}
    for each in all_settings():
        assert each.meaning
        assert each.name not in each.synonyms
        assert not {"kind", "options"} & set(each.synonyms)
        assert set(each.synonyms) & names <= sections, each.path


class TestDataOption:
    """`--data NAME=DIR` selects the benchmark of that name, or is refused."""

    def test_it_selects_the_benchmark_where_the_plan_names_none(self, tmp_path: Path) -> None:
        section = vpdr.load_config("paper", data=[f"pacs={tmp_path}"]).benchmark
        assert (section.kind, section.root) == ("pacs", str(tmp_path))

    def test_it_replaces_the_directory_of_a_plan(self, tmp_path: Path) -> None:
        stored = vpdr.load_config("paper", data=["pacs=/old"])
        plan = _written(tmp_path / "plan.toml", dump_toml(stored.to_plan()))
        config = load_experiment(str(plan), ExperimentOptions(data=[f"pacs={tmp_path}"])).method_configs[0].config
        assert config.benchmark.root == str(tmp_path)
        assert config.config_hash == stored.config_hash

    def test_it_is_refused_where_the_plan_names_another(self, tmp_path: Path) -> None:
        for source, settings in (("quickstart", ()), ("paper", ("benchmark.kind=digits",))):
            options = ExperimentOptions(settings=settings, data=[f"pacs={tmp_path}"])
            with pytest.raises(InvalidInput, match=r"--data pacs=DIR has no effect: the plan names") as caught:
                load_experiment(source, options)
            assert "\n" not in str(caught.value)

    def test_several_directories_need_a_benchmark(self, tmp_path: Path) -> None:
        data = [f"pacs={tmp_path}", f"digits={tmp_path}"]
        with pytest.raises(InvalidInput, match=r"add --set benchmark\.kind=digits"):
            vpdr.load_config("paper", data=data)

    def test_data_without_files_need_no_directory(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match=r"benchmark\.root has no effect with benchmark\.kind=synthetic"):
            vpdr.load_config("paper", data=[f"synthetic={tmp_path}"])

    def test_the_command_is_refused_before_anything_is_loaded(self, tmp_path: Path, capsys, monkeypatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert main(["run", "paper", "--data", f"pacs={tmp_path}", "--json"]) == 2  # there are no files in it
        assert "pacs" in capsys.readouterr().err
        assert json.dumps(sorted(path.name for path in tmp_path.iterdir())) == "[]"
