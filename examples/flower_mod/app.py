"""A Flower app of one's own; the privacy of its prototypes is the mod's and the node owner's business."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from vpdr.flower import PrototypePrivacyMod

CLASSES, DIM, ROUNDS = 4, 16, 3
mod = PrototypePrivacyMod(classes=CLASSES, dim=DIM, rounds=ROUNDS, mechanism="vpp")
client = ClientApp(mods=[mod])  # the last of all mods, so that others see private prototypes only


def my_embeddings(part: int) -> tuple[np.ndarray, np.ndarray]:
    """Your data and your encoder; here: four blobs."""
    rng = np.random.default_rng(part)
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
    for t in range(1, ROUNDS + 1):
        ask = [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]
        replies = list(grid.send_and_receive(ask, timeout=600))
        refused = [reply.error.reason for reply in replies if reply.has_error()]
        sets = [r.content["prototypes"].to_numpy_ndarrays() for r in replies if not r.has_error()]
        print(f"round {t}: {len(sets)} private uploads, refused {refused}")
        if sets:
            means = np.mean([vectors[np.argsort(labels)] for vectors, labels in sets], axis=0)
            print(f"   global prototypes {means.shape}, norms {np.linalg.norm(means, axis=1).round(2)}")
