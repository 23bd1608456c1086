"""The app on four nodes in this process: python examples/flower_mod/run.py [DIR]"""

import sys
import tempfile
from pathlib import Path

from app import client, main

from vpdr.flower.simulation import InProcessGrid

POLICY = """name = "silo-{index}"
[budget]
epsilon = 1.0
delta = 1e-5
selection = 0.1  # share of epsilon for the selections of vpp
[allow]
mechanisms = ["vpp"]
rounds = 3
guarantee = "proved"
[data]
encoder = "public"  # declared by the owner: the encoder was not trained on private samples
"""

root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
node_dirs = [root / f"silo-{index}" for index in range(4)]
for index, node_dir in enumerate(node_dirs):
    if not node_dir.exists():  # a second run finds the policy and the ledger of the first
        node_dir.mkdir(parents=True)
        (node_dir / "policy.toml").write_text(POLICY.format(index=index))
        (node_dir / "policy.toml").chmod(0o600)
grid = InProcessGrid(client, node_dirs)
main(grid, grid.contexts[2])
print(f"budget spent: vpdr ledger {node_dirs[0] / 'ledger.json'}")
