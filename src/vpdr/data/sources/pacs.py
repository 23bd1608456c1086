"""PACS: seven things as photographs, paintings, cartoons and sketches."""

from vpdr.data.division import Division
from vpdr.data.readers.folders import FolderReader
from vpdr.data.sources.facts import DomainFacts
from vpdr.data.sources.source import Source

_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

PACS = Source(
    name="pacs",
    title="PACS",
    modality="image",
    domains=(
        DomainFacts(name="photo", title="Photo", train=(189, 202, 182, 186, 199, 280, 432)),
        DomainFacts(name="art_painting", title="Art", train=(379, 255, 285, 184, 201, 295, 449)),
        DomainFacts(name="cartoon", title="Cartoon", train=(389, 457, 346, 135, 324, 288, 405)),
        DomainFacts(name="sketch", title="Sketch", train=(772, 740, 753, 608, 816, 80, 160)),
    ),
    class_names=_CLASSES,
    needs="<domain>/<class>/*.jpg with the domains photo, art_painting (or art), cartoon and sketch; "
    "train and test folders above or below a domain are read as one",
    where="https://domaingeneralization.github.io (Li et al., 2017)",
    licence="none stated; for research",
    division=Division(train_fraction=0.3),
    flips=True,
    read=FolderReader(
        domains={"photo": (), "art_painting": ("art",), "cartoon": (), "sketch": ()},
        classes=dict.fromkeys(_CLASSES, ()),
    ),
)
