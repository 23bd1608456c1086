"""A Flower app whose client sends private prototypes through `PrototypePrivacyMod`."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from vpdr.flower import PrototypePrivacyMod

CLASSES, DIM, ROUNDS = 4, 16, 3
mod = PrototypePrivacyMod(classes=CLASSES, dim=DIM, rounds=ROUNDS, mechanism="vpp")
client = ClientApp(mods=[mod])  # the last mod, so that others see private prototypes only


def my_embeddings(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Your data and your encoder; here: four blobs."""
    rng = np.random.default_rng(seed)
    labels = np.arange(2000) % CLASSES
    centres = 3 * np.random.default_rng(99).normal(size=(CLASSES, DIM))
    return centres[labels] + rng.normal(size=(2000, DIM)), labels


@client.train()
def train(message: Message, context: Context) -> Message:
    vectors, labels = my_embeddings(context.node_id)
    private = ArrayRecord({"vectors": Array(vectors), "labels": Array(labels)})
    return Message(RecordDict({"private": private}), reply_to=message)


server = ServerApp()


@server.main()
def main(grid: Grid, _: Context) -> None:
    for round in range(1, ROUNDS + 1):
        messages = [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]
        replies = list(grid.send_and_receive(messages, timeout=600))
        refused = [reply.error.reason for reply in replies if reply.has_error()]
        uploads = [reply.content["prototypes"].to_numpy_ndarrays() for reply in replies if not reply.has_error()]
        print(f"round {round}: {len(uploads)} private uploads, refused {refused}")
        if uploads:
            means = np.mean([vectors[np.argsort(labels)] for vectors, labels in uploads], axis=0)
            print(f"   global prototypes {means.shape}, norms {np.linalg.norm(means, axis=1).round(2)}")
