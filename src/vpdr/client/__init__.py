"""One client: release, fine-tuning and evaluation. Simulation and Flower use the same class."""

from vpdr.client.client import MAX_ABS_COORDINATE, Client, Model, ReleaseConfig, Samples, Shard, TrainConfig, sanitize
from vpdr.client.evaluation import evaluate_client, predict
