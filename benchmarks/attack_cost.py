"""Cost of the attacks: membership inference as a share of the run, reconstructions in seconds.

python benchmarks/attack_cost.py [--synthetic] [--weights FILE] [--steps 500] [--device cpu] [--fsh]
"""

import argparse
import os
import time
from pathlib import Path

import torch

from vpdr.attacks import AttackCallbacks, AttackConfig, AttackContext
from vpdr.attacks.base import EmbeddingSpace, ImageSpace, fold_batch_norms
from vpdr.attacks.inversion import FeatureInversionAttack
from vpdr.attacks.membership import MembershipAttack
from vpdr.config import ExperimentOptions, load_experiment
from vpdr.encoder.personal import projection_for
from vpdr.encoder.zoo import load_backbone
from vpdr.federation import Callbacks, build, simulate

FEATURES_ONLY = ("benchmark.kind=synthetic", "benchmark.samples=600")


def membership(synthetic: bool, stronger: bool) -> None:
    """20 rounds, 4 clients, 10 classes."""
    settings = ("mechanism.kind=igpp", *(FEATURES_ONLY if synthetic else ()))
    federation = build(load_experiment("paper", ExperimentOptions(settings=settings)).method_configs[0].config)
    context = AttackContext(
        config=AttackConfig(kinds=("mia",), likelihood_ratio=stronger),
        streams=federation.streams,
        total_rounds=federation.config.run.rounds,
        input_space_for=lambda _: EmbeddingSpace(federation.config.model.dim),
    )
    attack = MembershipAttack(context)
    scoring: list[float] = []

    def observe(round_uploads) -> None:
        begin = time.thread_time()
        attack.observe(round_uploads)
        scoring.append(time.thread_time() - begin)

    begin = time.thread_time()
    simulate(federation, callbacks=Callbacks(on_uploads=[observe]))
    run = time.thread_time() - begin - sum(scoring)
    begin = time.thread_time()
    attack.result()
    metrics = time.thread_time() - begin
    share = (sum(scoring) + metrics) / run
    print(f"run {run:.2f} s, scoring {sum(scoring):.3f} s, metrics {metrics:.3f} s: {100 * share:.1f} % of the run")


def reconstruction(weights: Path | None, steps: int, device: str) -> None:
    """40 targets on EfficientNet-Lite0 at 96 pixels, none of which stops early."""
    config = (
        load_experiment("paper", ExperimentOptions(settings=(*FEATURES_ONLY, "mechanism.kind=none")))
        .method_configs[0]
        .config
    )
    federation = build(config)
    backbone = load_backbone("efficientnet_lite0", str(weights or ""), pixels=96)
    projection = projection_for(
        backbone.info, "random", config.model.dim, rng=federation.streams.generator("projection")
    )
    space = ImageSpace(fold_batch_norms(backbone), projection)
    attack_config = AttackConfig(kinds=("fsh",), rounds=(1,), steps=steps, device=device)
    context = AttackContext(
        config=attack_config,
        streams=federation.streams,
        total_rounds=1,
        input_space_for=lambda _: space,
        callbacks=AttackCallbacks(on_message=print),
    )
    attack = FeatureInversionAttack(context)
    begin = time.process_time()
    simulate(federation, callbacks=Callbacks(on_uploads=[attack.observe], stop=lambda: bool(attack.round_results)))
    result = attack.result()
    cpu_seconds = time.process_time() - begin
    summary = f"{result.rounds[0].targets} targets, {steps} steps: {result.seconds:.1f} s by the clock"
    print(f"fsh on {device}: {summary}, {cpu_seconds:.1f} s of all cores together")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--fsh", action="store_true")
    parser.add_argument("--stronger", action="store_true")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{len(os.sched_getaffinity(0))} cores, torch {torch.__version__}")
    if options.fsh:
        reconstruction(options.weights, options.steps, options.device)
        return
    for _ in range(options.repeat):
        membership(options.synthetic, options.stronger)


if __name__ == "__main__":
    main()
