"""CIFAR-10: one pool of small photographs, for label skew."""

from vpdr.data.division import Division
from vpdr.data.readers.cifar import read_cifar
from vpdr.data.sources.facts import DomainFacts
from vpdr.data.sources.source import Source

CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    modality="image",
    domains=(DomainFacts(name="cifar10", title="CIFAR-10", train=(5_000,) * 10, test=(1_000,) * 10),),
    class_names=(
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    ),
    needs="cifar-10-batches-py/ (data_batch_1 to 5, test_batch) or cifar-10-batches-bin/ (*.bin)",
    where="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="none stated; its authors ask to be cited (Krizhevsky, 2009)",
    division=Division(skew="pooled", clients=20),
    flips=True,
    read=read_cifar,
)
