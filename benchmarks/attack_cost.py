"""What the attacks cost: membership inference as a share of the run it watches, reconstructions in seconds.

python benchmarks/attack_cost.py [--synthetic] [--weights FILE] [--steps 500] [--device cpu] [--fsh]
"""

import argparse
import os
import time
from pathlib import Path

import torch

from vpdr.attacks import AttackOrder, Scene
from vpdr.attacks.folding import folded
from vpdr.attacks.fsh import Fsh
from vpdr.attacks.mia import Mia
from vpdr.attacks.spaces import PictureSpace
from vpdr.encoder import load_backbone, path_of
from vpdr.engines.build import build
from vpdr.engines.simulate import Hearing, simulate
from vpdr.plan import load_experiment
from vpdr.plan.experiment import Wishes

FEATURES_ONLY = ("benchmark.kind=synthetic", "benchmark.samples=600")


def membership(synthetic: bool, stronger: bool) -> None:
    """20 rounds, 4 clients, 10 classes."""
    settings = FEATURES_ONLY if synthetic else ()
    federation = build(load_experiment("paper", Wishes(settings=settings)).arms[0].plan)
    attack = Mia(AttackOrder(kinds=("mia",), stronger=stronger), federation.streams)
    inside: list[float] = []

    def listen(moment) -> None:
        begin = time.thread_time()
        attack.observe(moment)
        inside.append(time.thread_time() - begin)

    begin = time.thread_time()
    simulate(federation, hearing=Hearing(listeners=[listen]))
    run = time.thread_time() - begin - sum(inside)
    begin = time.thread_time()
    attack.result()
    end = time.thread_time() - begin
    share = (sum(inside) + end) / run
    print(
        f"run {run:.2f} s, scoring {sum(inside):.3f} s, metrics {end:.3f} s: {100 * share:.1f} % of the run"
    )


def reconstruction(weights: Path | None, steps: int, device: str) -> None:
    """40 targets on EfficientNet-Lite0 at 96 pixels, none of which stops early."""
    plan = load_experiment("paper", Wishes(settings=(*FEATURES_ONLY, "mechanism.kind=none"))).arms[0].plan
    federation = build(plan)
    backbone = load_backbone("efficientnet_lite0", str(weights or ""), pixels=96)
    path = path_of(backbone, "random", plan.model.dim, rng=federation.streams.draw("projection"))
    space = PictureSpace(folded(backbone), path)
    order = AttackOrder(kinds=("fsh",), rounds=(1,), steps=steps, device=device)
    scene = Scene(order=order, streams=federation.streams, rounds=1, space=lambda _: space, tell=print)
    attack = Fsh(scene)
    begin = time.process_time()
    simulate(federation, stop=lambda: bool(attack.rounds), hearing=Hearing(listeners=[attack.observe]))
    found = attack.result()
    spent = time.process_time() - begin
    told = f"{found['rounds'][0]['targets']} targets, {steps} steps: {found['seconds']:.1f} s by the clock"
    print(f"fsh on {device}: {told}, {spent:.1f} s of all cores together")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--synthetic", action="store_true")
    options.add_argument("--fsh", action="store_true")
    options.add_argument("--stronger", action="store_true")
    options.add_argument("--weights", type=Path)
    options.add_argument("--steps", type=int, default=500)
    options.add_argument("--device", default="cpu")
    options.add_argument("--repeat", type=int, default=3)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print(f"{len(os.sched_getaffinity(0))} cores, torch {torch.__version__}")
    if chosen.fsh:
        reconstruction(chosen.weights, chosen.steps, chosen.device)
        return
    for _ in range(chosen.repeat):
        membership(chosen.synthetic, chosen.stronger)


if __name__ == "__main__":
    main()
