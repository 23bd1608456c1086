"""Configs of runs: settings read from TOML and checked before anything starts."""

from vpdr.config.config import RunConfig
from vpdr.config.load import Experiment, MethodConfig, load_experiment

__all__ = ["Experiment", "MethodConfig", "RunConfig", "load_experiment"]
