"""VPP and DCR in your own PyTorch training loop: one client, three rounds, no engine of ours."""

import torch
from torch import nn

from vpdr import Budget, Dcr, Ledger, Vpp

ROUNDS, CLASSES, DIM, CLIP_NORM = 3, 4, 32, 5.0
torch.use_deterministic_algorithms(True)
rng = torch.Generator().manual_seed(0)
labels = torch.randint(CLASSES, (400,), generator=rng)
inputs = 2 * torch.randn(CLASSES, DIM, generator=rng)[labels] + torch.randn(400, DIM, generator=rng)

encoder, head = nn.Linear(DIM, DIM), nn.Linear(DIM, CLASSES)  # your adapters and head on a frozen backbone
optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-2)

budget = Budget(epsilon=8.0, delta=1e-5)
mechanism = Vpp.calibrated(budget, ROUNDS, clip_norm=CLIP_NORM, dim=DIM)  # VPP: less noise where it matters
ledger = Ledger(client="hospital-a", budget=budget)
regulariser = Dcr(clip_norm=CLIP_NORM).make_regulariser(head)  # DCR: soft clipping and an EMA teacher

for round in range(1, ROUNDS + 1):
    with torch.no_grad():
        release = mechanism.release(encoder(inputs), labels)
    upload = release.charge_to(ledger, round=round)  # send upload.vectors and upload.labels
    prototypes = torch.zeros(CLASSES, DIM).index_copy(0, upload.labels, upload.vectors)  # the server's answer

    for rows in torch.randperm(len(labels), generator=rng).split(100):
        features, logits, penalty = regulariser(encoder(inputs[rows]), head)
        loss = nn.functional.cross_entropy(logits, labels[rows])
        loss = loss + 0.1 * nn.functional.mse_loss(features, prototypes[labels[rows]])
        optimizer.zero_grad()
        (loss + penalty).backward()
        optimizer.step()
        regulariser.after_step(head)
    regulariser.after_round(head)
    accuracy = (head(regulariser.transform_features(encoder(inputs))).argmax(1) == labels).float().mean()
    print(f"round {round}: accuracy {accuracy:.3f}, epsilon spent {ledger.epsilon_spent:.3f}")
