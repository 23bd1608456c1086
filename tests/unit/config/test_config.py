"""Plans: what is read, what is refused, and how it is told."""

import tomllib
from pathlib import Path

import pytest

from vpdr.config import RunConfig, load_experiment
from vpdr.config.load import ExperimentOptions, builtin_names, parse_seeds
from vpdr.config.rules import guarantee_level, release_encoder
from vpdr.io import dump_toml
from vpdr.privacy import EncoderKind, GuaranteeLevel
from vpdr.validation import InvalidInput


def config_of(source: str = "paper", *settings: str, methods: str | None = None) -> RunConfig:
    return load_experiment(source, ExperimentOptions(settings=settings, methods=methods)).method_configs[0].config


@pytest.mark.parametrize("name", [*builtin_names("presets"), *builtin_names("experiments")])
def test_everything_built_in_can_be_read(name) -> None:
    experiment = load_experiment(name)
    assert experiment.method_configs
    for method in experiment.method_configs:
        again = RunConfig.from_dict(tomllib.loads(dump_toml(method.config.to_dict())))
        assert again == method.config
        assert again.config_hash == method.config.config_hash


def test_the_paper_preset_has_the_papers_values() -> None:
    config = config_of("paper", "mechanism.kind=vpp", "regulariser.kind=dcr")
    assert (config.run.rounds, config.train.epochs, config.train.batch) == (20, 2, 256)
    assert (config.train.lr, config.train.weight_decay) == (1e-3, 1e-5)
    assert (config.budget.epsilon, config.budget.delta) == (1.0, 1e-5)
    assert (config.mechanism.keep, config.mechanism.cap, config.mechanism.share) == (0.2, 0.1, 0.1)
    chosen = config.regulariser
    assert (chosen.softness, chosen.decay, chosen.temperature, chosen.weight) == (0.05, 0.999, 4.0, 0.05)
    assert chosen.expand
    assert not chosen.kd_tau2
    assert config.weights.kind == "uniform"


def test_the_authors_preset_has_the_choices_of_the_released_code() -> None:
    config = config_of("authors")
    assert (config.mechanism.keep, config.budget.accountant, config.train.weight_decay) == (0.3, "rdp", 5e-4)
    assert config.regulariser.kd_tau2
    assert not config.regulariser.expand


def test_strict_is_proved_and_stays_proved() -> None:
    assert guarantee_level(config_of("strict")) is GuaranteeLevel.PROVED
    for weaker in (
        "release.encoder=personal",
        "release.encoder=framework",
        "mechanism.kind=none",
        "release.summariser=means",
        "weights.kind=class_count",
    ):
        with pytest.raises(InvalidInput, match=r"set release|set weights|lower budget"):
            config_of("strict", weaker)


ON_PATH = ("framework.kind=mpft", "release.encoder=broadcast")


@pytest.mark.parametrize("rule", [(), ("release.summariser=sums", "budget.adjacency=replace-one")])
@pytest.mark.parametrize("mechanism", ["igpp", "vpp"])
def test_broadcast_features_can_be_proved(rule, mechanism) -> None:
    config = config_of("paper", *ON_PATH, *rule, f"mechanism.kind={mechanism}", "budget.require=proved")
    assert guarantee_level(config) is GuaranteeLevel.PROVED
    assert release_encoder(config) is EncoderKind.BROADCAST
    assert guarantee_level(config_of("paper", *ON_PATH, "release.summariser=kmeans")) is GuaranteeLevel.AS_PUBLISHED


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["budgt.epsilon=1"], "unknown section: 'budgt'; did you mean 'budget'?"),
        (["budget.epsilonn=1"], "unknown setting in [budget]: 'epsilonn'; did you mean 'epsilon'?"),
        (["budget.epsilon=-1"], "epsilon must be a positive number, got -1"),
        (["budget.epsilon=much"], "budget.epsilon must be a number, got 'much'"),
        (["run.rounds=2.5"], "run.rounds must be a whole number, got 2.5"),
        (["run.rounds=true"], "run.rounds must be a whole number, got True"),
        (["run.rounds=0"], "[run] rounds must be at least 1, got 0"),
        (["framework.kind=fedprot"], "unknown framework: 'fedprot'; did you mean 'fedproto'?"),
        (["framework.fedproto.weigt=1"], "unknown setting in [framework.fedproto]: 'weigt'; did you mean 'weight'?"),
        (["mechanism.kind=laplace"], "unknown mechanism: 'laplace'"),
        (["mechanism.keep=0.7"], "keep must lie in (0, 0.5]"),
        (["budget.adjacency=replace-one"], "set release.summariser=sums"),
        (["release.summariser=finch", "budget.adjacency=add-remove"], "set release.summariser=sums"),
        (["budget.require=proved"], "this one would be conditional"),
        (["release.noise=dice"], "noise must be one of seeded, system"),
        (["participation.fraction=0"], "fraction must lie in (0, 1]"),
        (["budget=1"], "--set needs section.key=value"),
        (["budget.epsilon"], "--set needs section.key=value"),
        (["benchmark.kind=imagenet"], "unknown benchmark: 'imagenet'"),
        (["model.dim=1"], "[model] dim must be at least 2"),
        (["model.projection=foo"], "unknown projection: 'foo'"),
        (["model.dropout=3"], "[model] dropout must lie in [0, 1)"),
        (["budget.delta=0"], "a Gaussian release needs delta in (0, 1)"),
        (["regulariser.kind=dcr", "regulariser.decay=2"], "[regulariser] decay must lie in [0, 1)"),
        (["framework.fedproto.weight=-1"], "[framework.fedproto] weight must be at least 0"),
        (["framework.fedproto.weight=abc"], "framework.fedproto.weight must be a number, got 'abc'"),
        (["framework.fedtgp.epochs=1.5"], "framework.fedtgp.epochs must be a whole number"),
        (["participation.schedule.mnist=1"], "participation.schedule.mnist must be a list of rounds, got 1"),
        (['participation.schedule.mnist=["a"]'], "must be a list of rounds"),
        (["participation.schedule.mnist=[1, 99]"], "must lie in 1 to 20, got [1, 99]"),
        (["release.summariser=sums", "release.min_count=3"], "release.min_count is for class means"),
        (["benchmark.kind=synthetic", "benchmark.per_domain=2"], "set benchmark.clients, not per_domain"),
        (["benchmark.test_fraction=1"], "test_fraction must lie in [0, 1)"),
        (["sedes.x=1"], "unknown section: 'sedes'; did you mean 'seeds'?"),
        (["release.encoder=secret"], "encoder must be one of framework, public, broadcast, personal"),
        (
            ["release.encoder=broadcast"],
            "release.encoder=broadcast needs a framework that broadcasts a feature map (mpft), got fedproto; "
            "set framework.kind=mpft, or release.encoder=public",
        ),
        (["framework.kind=local", "release.encoder=broadcast"], "got local; set framework.kind=mpft"),
        ([*ON_PATH, "mechanism.accumulate=true"], "stays as it is, got broadcast; set release.encoder=public"),
        (
            [*ON_PATH, "mechanism.kind=rapp", "release.summariser=sums"],
            "mechanism rapp adds releases up, which needs an encoder that stays as it is, got broadcast",
        ),
        ([*ON_PATH, "release.count=1"], "needs at least two releases"),
        ([*ON_PATH, "run.rounds=1"], "got 1; raise run.rounds and release.count"),
        ([*ON_PATH, "train.privacy=dpsgd"], "set release.encoder=personal"),
        (["framework.mpft.on_path=true"], "unknown setting in [framework.mpft]: 'on_path'"),
    ],
)
def test_mistakes_are_reported_in_one_line(settings, words) -> None:
    with pytest.raises(InvalidInput) as caught:
        config_of("paper", *settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_framework_option_reaches_its_framework_only() -> None:
    config = config_of("paper", "framework.kind=fedpcl", "framework.fedpcl.temperature=0.5")
    assert config.framework.options == {"fedpcl": {"temperature": 0.5}}
    with pytest.raises(
        InvalidInput, match=r"framework\.fedpcl\.temperature has no effect with framework\.kind=fedproto"
    ):
        config_of("paper", "framework.fedpcl.temperature=0.5")


def test_a_method_keeps_its_own_settings() -> None:
    experiment = load_experiment(
        "paper", ExperimentOptions(settings=["framework.kind=fedpcl"], methods="local,none,vpdr")
    )
    kinds = {
        method.method: (method.config.framework.kind, method.config.mechanism.kind)
        for method in experiment.method_configs
    }
    assert kinds == {"local": ("local", "igpp"), "none": ("fedpcl", "none"), "vpdr": ("fedpcl", "vpp")}


def test_unknown_names_are_suggested(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="did you mean 'paper'"):
        load_experiment("papr")
    with pytest.raises(InvalidInput, match="did you mean 'local'"):
        load_experiment("paper", ExperimentOptions(methods="locl"))
    with pytest.raises(InvalidInput, match="cannot read"):
        load_experiment(str(tmp_path / "gone.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("[run\n")
    with pytest.raises(InvalidInput, match="not valid TOML"):
        load_experiment(str(broken))
    odd = tmp_path / "odd.toml"
    odd.write_text("run = 3\n")
    with pytest.raises(InvalidInput, match=r"run must be a table of settings, got 3; write \[run\]"):
        load_experiment(str(odd))


def test_a_file_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'preset = "strict"\nseeds = [1, 2]\nmethods = ["loud", "local"]\n'
        "[run]\nrounds = 3\n[custom_methods.loud]\nbudget = { epsilon = 8.0 }\n"
    )
    experiment = load_experiment(str(file))
    assert experiment.seeds == (1, 2)
    loud = experiment.method_configs[0].config
    assert (loud.run.rounds, loud.budget.epsilon, loud.release.count) == (3, 8.0, 5)
    assert loud.run.name == "mine"


@pytest.mark.parametrize(("text", "seeds"), [("0..2", (0, 1, 2)), ("7", (7,)), ("0,4,2", (0, 4, 2))])
def test_seeds(text, seeds) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3..1", "-1", "1,1", "0.5"])
def test_invalid_seeds_are_refused(text) -> None:
    with pytest.raises(InvalidInput, match="seeds must"):
        parse_seeds(text)


def test_the_config_hash_depends_on_settings_that_change_results_only() -> None:
    first, second = config_of("paper"), config_of("paper", "run.name=other")
    assert first.config_hash == second.config_hash
    assert first.config_hash != config_of("paper", "run.seed=1").config_hash
    assert first.config_hash == config_of("paper", "run.measure_every=1", "mechanism.metric=plain").config_hash
    assert first.config_hash != config_of("paper", "run.measure_every=2").config_hash  # its record has fewer numbers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('seeds = "0..2"', "seeds must be a list of whole numbers, got '0..2'"),
        ("seeds = 3", "seeds must be a list of whole numbers, got 3"),
        ("seeds = [0, 0]", "seeds must be different whole numbers"),
        ("seeds = [1.5]", "seeds must be different whole numbers"),
        ("seeds = [true]", "seeds must be different whole numbers"),
        ("methods = [1]", "methods must be a list of names, got 1 among them"),
        ('methods = "local,igpp"', "methods must be a list of names, got 'local,igpp'"),
        ("preset = 3", "preset must be the name of a preset, got 3"),
        ("title = 3", "title must be a text, got 3"),
        ("scenarios = 3", "scenarios must be a table of tables, got 3"),
        ("[scenarios]\na = 3", "[scenarios.a] must hold tables of settings, got 3"),
        ("custom_methods = 3", "custom_methods must be a table of tables, got 3"),
        ('[custom_methods."../../out"]\nrun = { rounds = 1 }', "names a folder; use letters"),
        ('methods = ["local"]\nbaseline = "foo"', "unknown baseline: 'foo'"),
        ("sedes = [1]", "unknown section: 'sedes'; did you mean 'seeds'?"),
    ],
)
def test_a_file_with_a_wrong_key_is_reported_in_one_line(tmp_path: Path, text, words) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        load_experiment(str(file))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_override_without_effect_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"--set mechanism\.kind has no effect"):
        load_experiment("paper", ExperimentOptions(settings=["mechanism.kind=none"], methods="igpp,vpdr"))


def test_a_folder_of_its_name_does_not_hide_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper").mkdir()
    assert load_experiment("paper").name == "paper"
