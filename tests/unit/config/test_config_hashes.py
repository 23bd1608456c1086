"""Hashes of configs never change: directories, checkpoints and records are named by them."""

import logging

import pytest

from vpdr.config import RunConfig, load_experiment
from vpdr.config.load import ExperimentOptions
from vpdr.mechanisms import MECHANISMS, Igpp, MechanismConfig
from vpdr.validation import InvalidInput

PRESETS = {"paper": "1ddd3d079ad1b0a5", "authors": "974f208ecfe63163", "strict": "6c7316e39a1a6a43"}
BASELINES = {"paper": "7d56544bd772cb50", "authors": "478202ea61487323"}  # IGPP: what the presets ran in version 0.1
QUICKSTART = {
    ("domains", "local"): "0b89a3489ea8487f",
    ("domains", "none"): "de4c13a261501f94",
    ("domains", "none-public"): "8c4754a1b2d3102f",
    ("domains", "igpp-1"): "98dfd92cba1a0ccb",
    ("domains", "igpp-8"): "95355f905f8ae3c4",
    ("domains", "vpdr-1"): "94ab0418c211b8d0",
    ("domains", "vpdr-8"): "fafd92fed8ada04c",
    ("domains", "random-1"): "d5952bbdaf84a07a",
    ("domains", "random-8"): "04ddaf42decf6c2f",
    ("domains", "accumulated-1"): "5236406d69322847",
    ("domains", "accumulated-8"): "81ec73e42d5cc740",
    ("domains", "strict-1"): "5f511194140c9caa",
    ("domains", "strict-8"): "fcd2824136035dcd",
    ("missing", "local"): "11e146a587e485db",
    ("missing", "none"): "defcd5eaf2636ace",
    ("missing", "none-public"): "efa2f52a292627fe",
    ("missing", "igpp-1"): "de6162174f8a8de1",
    ("missing", "igpp-8"): "053e856e2d3ed15c",
    ("missing", "vpdr-1"): "1b9f99105bb1c442",
    ("missing", "vpdr-8"): "041600ad290770c7",
    ("missing", "random-1"): "94665a2a6dc9cac0",
    ("missing", "random-8"): "14d8df9612d40270",
    ("missing", "accumulated-1"): "a9f831c0120c2b73",
    ("missing", "accumulated-8"): "b3046402e4319be6",
    ("missing", "strict-1"): "b82908137e2325d2",
    ("missing", "strict-8"): "9ee5fccebfe5d561",
}
FRAMEWORKS = {  # with the old spelling of all settings
    "local": ("24e8ee2276fba8ef", ["run.rounds=5"]),
    "fedproto": ("0360a45d0d963bf9", ["framework.fedproto.weight=1", "mechanism.kind=vpp", "regulariser.kind=dcr"]),
    "fedpcl": ("f7731f298dd799e5", ["framework.fedpcl.sharpness=0.5", "framework.fedpcl.absent=global"]),
    "fpl": ("839a194eb3560270", ["framework.fpl.sharpness=0.1", "framework.fpl.early_exit=true"]),
    "fedplvm": (
        "20aaa8c70fd86088",
        ["framework.fedplvm.sharpness=0.2", "framework.fedplvm.variant=authors", "framework.fedplvm.normalised=true"],
    ),
    "fedtgp": ("c1665d1e8ac8a331", ["framework.fedtgp.threshold=50", "mechanism.kind=none"]),
    "mpft": ("815fd39b14ad6fb9", ["framework.mpft.batch=16", "release.encoder=transcript"]),
}


def config_of(*settings: str, source: str = "paper") -> RunConfig:
    return load_experiment(source, ExperimentOptions(settings=settings)).method_configs[0].config


@pytest.mark.parametrize("name", PRESETS)
def test_presets_keep_their_hash(name) -> None:
    assert config_of(source=name).config_hash == PRESETS[name]


@pytest.mark.parametrize("name", BASELINES)
def test_the_baseline_keeps_the_hash_that_the_preset_had(name) -> None:
    assert config_of("mechanism.kind=igpp", source=name).config_hash == BASELINES[name]


def test_every_method_of_quickstart_keeps_its_hash() -> None:
    methods = load_experiment("quickstart").method_configs
    assert {(each.scenario, each.method): each.config.config_hash for each in methods} == QUICKSTART


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_options_of_frameworks_keep_their_hash(framework) -> None:
    expected, settings = FRAMEWORKS[framework]
    method = () if any(each.startswith("mechanism.kind") for each in settings) else ("mechanism.kind=igpp",)
    config = config_of(f"framework.kind={framework}", *method, *settings)
    assert config.config_hash == expected
    assert RunConfig.from_dict(config.to_dict()).config_hash == expected


RENAMED = [
    ("release.encoder=transcript", "release.encoder=broadcast"),
    ("regulariser.kind=plain", "regulariser.kind=none"),
]


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_old_spellings_are_read_with_a_hint(old, new, caplog) -> None:
    settings = ("framework.kind=mpft",)
    with caplog.at_level(logging.WARNING, logger="vpdr.config"):
        config = config_of(*settings, old)
    assert [record.getMessage() for record in caplog.records] == [
        f"{old} is now {new}; the old spelling is accepted for one more version"
    ]
    caplog.clear()
    assert config == config_of(*settings, new)
    assert config.config_hash == config_of(*settings, new).config_hash
    assert not caplog.records


def test_a_retired_setting_is_ignored_with_a_hint_or_refused(caplog) -> None:
    assert config_of("mechanism.metric=plain") == config_of()
    assert caplog.messages == ["mechanism.metric has no effect any more; leave it out"]
    with pytest.raises(InvalidInput, match=r"mechanism\.metric=projection was removed") as caught:
        config_of("mechanism.metric=projection", source="strict")
    assert "\n" not in str(caught.value)


def test_old_keys_of_experiment_files_are_read_with_a_hint(tmp_path, caplog) -> None:
    def load(scenarios: str, methods: str):
        file = tmp_path / "mine.toml"
        file.write_text(
            f'methods = ["loud"]\n[{scenarios}.few.run]\nrounds = 3\n[{methods}.loud.budget]\nepsilon = 8.0\n'
        )
        return load_experiment(str(file))

    old = load("settings", "arms")
    assert [message.split(";")[0] for message in caplog.messages] == [
        "settings is now scenarios",
        "arms is now custom_methods",
    ]
    assert old == load("scenarios", "custom_methods")
    both = tmp_path / "both.toml"
    both.write_text("[arms.a.run]\nrounds = 1\n[custom_methods.a.run]\nrounds = 1\n")
    with pytest.raises(InvalidInput, match="arms is the old name of custom_methods"):
        load_experiment(str(both))


class WithOwnOption:
    """A mechanism with the option `own`."""

    traits = Igpp.traits

    @classmethod
    def from_config(cls, config: MechanismConfig) -> Igpp:
        config.options.get("own")
        return Igpp.from_config(config)


def test_options_of_a_plugin_are_a_table_of_its_name(request) -> None:
    MECHANISMS.register("plugged", WithOwnOption)
    request.addfinalizer(lambda: MECHANISMS.unregister("plugged"))
    config = config_of("mechanism.kind=plugged", "mechanism.plugged.own=3")
    assert config.mechanism.options == {"plugged": {"own": 3}}
    assert config.to_dict()["mechanism"]["plugged"] == {"own": 3}
    assert RunConfig.from_dict(config.to_dict()) == config
    assert config.config_hash != config_of().config_hash
    assert "options" not in config_of().to_dict()["mechanism"]
    with pytest.raises(InvalidInput, match="unknown mechanism table: 'mine'"):
        config_of("mechanism.mine.width=3")
    with pytest.raises(InvalidInput, match=r"set mechanism\.keep"):
        config_of("mechanism.vpp.keep=0.3")


def test_old_names_of_framework_options_are_read_with_a_hint(caplog) -> None:
    old = config_of("framework.kind=fedpcl", "framework.fedpcl.sharpness=0.5", "framework.fedpcl.absent=global")
    assert [message.split(";")[0] for message in caplog.messages] == [
        "framework.fedpcl.sharpness is now framework.fedpcl.temperature",
        "framework.fedpcl.absent is now framework.fedpcl.missing_class_rule",
    ]
    assert old.framework.options == {"fedpcl": {"temperature": 0.5, "missing_class_rule": "global"}}
    with pytest.raises(InvalidInput, match="one setting under two names"):
        config_of("framework.fpl.sharpness=0.5", "framework.fpl.temperature=0.5")
