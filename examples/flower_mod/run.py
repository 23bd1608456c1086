"""The app on four nodes in this process: python examples/flower_mod/run.py [FOLDER]"""

import sys
import tempfile
from pathlib import Path

from app import client, main

from vpdr.flower.grid import InProcessGrid

POLICY = """name = "silo-{part}"
[budget]
epsilon = 1.0
delta = 1e-5
selection = 0.1  # of epsilon, for the coordinates that vpp selects
[allow]
mechanisms = ["vpp"]
rounds = 3
guarantee = "proved"
[data]
encoder = "public"  # no private sample has touched what makes the embeddings: the owner's word, not the app's
"""

root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
homes = [root / f"silo-{part}" for part in range(4)]
for part, home in enumerate(homes):
    if not home.exists():  # an owner writes a policy once; a second run finds its ledger beside it
        home.mkdir(parents=True)
        (home / "policy.toml").write_text(POLICY.format(part=part))
        (home / "policy.toml").chmod(0o600)
grid = InProcessGrid(client, homes)
main(grid, grid.contexts[2])
print(f"what was spent: vpdr ledger {homes[0] / 'ledger.json'}")
