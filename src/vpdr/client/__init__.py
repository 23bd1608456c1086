"""One client: release, fine-tuning and evaluation. Simulation and Flower use the same class."""

from vpdr.client.client import Client, Model, ReleaseConfig, Samples, Shard, TrainConfig

__all__ = ["Client", "Model", "ReleaseConfig", "Samples", "Shard", "TrainConfig"]
