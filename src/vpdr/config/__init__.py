"""Configs of runs: settings read from TOML and checked before anything starts."""

from vpdr.config.config import BenchmarkSection, RunConfig
from vpdr.config.load import (
    Experiment,
    ExperimentOptions,
    MethodConfig,
    load_experiment,
    parse_data_dirs,
    parse_overrides,
    parse_seeds,
    read_builtin,
    read_source,
)
from vpdr.config.renames import rename_settings
from vpdr.config.rules import (
    SYNTHETIC_BENCHMARKS,
    check_encoder_is_fixed,
    encoder_setting,
    guarantee_level,
    has_noop_regulariser,
    make_framework,
    make_regulariser,
    mechanism_traits,
    release_encoder,
    selection_config,
    uploads_prototypes,
)
