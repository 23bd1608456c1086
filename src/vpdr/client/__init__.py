"""One client: it releases, it fine-tunes, it is measured. The same object under every engine."""

from vpdr.client.client import Client
from vpdr.client.parts import Habits, Model, Promise, Samples, Shard

__all__ = ["Client", "Habits", "Model", "Promise", "Samples", "Shard"]
