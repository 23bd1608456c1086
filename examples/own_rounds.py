"""Your own loop over rounds: clients and a server built from a config, driven one call at a time."""

import vpdr

config = vpdr.load_config(
    "strict",
    "benchmark.kind=synthetic",
    "benchmark.clients=4",
    "benchmark.classes=5",
    "benchmark.samples=100",
    "model.dim=32",
    "run.rounds=3",
)
federation = vpdr.build(config)
server, state = federation.server, federation.server.init_state()

for round in range(1, config.run.rounds + 1):
    uploads = {client.id: client.release(round) for client in federation.clients}  # charged before it is made
    uploads = {name: upload for name, upload in uploads.items() if upload is not None}
    broadcast, state = server.aggregate(uploads, state, round)
    for client in federation.clients:
        client.finetune(broadcast, round)
    accuracy = vpdr.evaluate_client(federation.clients[0])["accuracy"]["own"]["head"]
    spent = federation.clients[0].ledger.epsilon_spent
    print(f"round {round}: accuracy {accuracy:.3f} of the first client, epsilon {spent:.3f} spent")
