"""The public benchmarks of the paper: what they are, and how each is had from a user's disk."""

from vpdr.data.sources.agnews import AGNEWS
from vpdr.data.sources.cifar10 import CIFAR10
from vpdr.data.sources.digits import DIGITS
from vpdr.data.sources.facts import Checkup, Count, DomainFacts
from vpdr.data.sources.office_caltech import OFFICE_CALTECH
from vpdr.data.sources.pacs import PACS
from vpdr.data.sources.source import Source

SOURCES: dict[str, Source] = {
    source.name: source for source in (DIGITS, OFFICE_CALTECH, PACS, CIFAR10, AGNEWS)
}

__all__ = ["SOURCES", "Checkup", "Count", "DomainFacts", "Source"]
