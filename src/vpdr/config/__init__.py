"""Configs of runs: settings read from TOML and checked before anything starts."""

from vpdr.config.config import BenchmarkSection, RunConfig
from vpdr.config.load import Experiment, ExperimentOptions, MethodConfig, load_experiment
