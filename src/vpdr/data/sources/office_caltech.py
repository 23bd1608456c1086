"""Office-Caltech-10: ten things from an office in four kinds of photographs."""

from vpdr.data.division import Division
from vpdr.data.readers.folders import FolderReader
from vpdr.data.sources.facts import DomainFacts
from vpdr.data.sources.source import Source

_CLASSES = {
    "backpack": ("back_pack",),
    "bike": ("touring_bike",),
    "calculator": (),
    "headphones": ("head_phones",),
    "keyboard": ("computer_keyboard",),
    "laptop": ("laptop_computer", "laptop_101"),
    "monitor": ("computer_monitor",),
    "mouse": ("computer_mouse",),
    "mug": ("coffee_mug",),
    "projector": ("video_projector",),
}

OFFICE_CALTECH = Source(
    name="office_caltech",
    title="Office-Caltech-10",
    modality="image",
    domains=(
        DomainFacts(name="amazon", title="Amazon", train=(92, 82, 94, 99, 100, 100, 99, 100, 94, 98)),
        DomainFacts(name="caltech", title="Caltech", train=(151, 110, 100, 138, 85, 128, 133, 94, 87, 97)),
        DomainFacts(name="dslr", title="DSLR", train=(12, 21, 12, 13, 10, 24, 22, 12, 8, 23)),
        DomainFacts(name="webcam", title="Webcam", train=(29, 21, 31, 27, 27, 30, 43, 30, 27, 30)),
    ),
    class_names=tuple(_CLASSES),
    needs="<domain>/<class>/*.jpg with the domains amazon, caltech (or caltech10), dslr and webcam",
    where="https://github.com/ZhangJUJU/OfficeCaltechDomainAdaptation (images/)",
    licence="none stated; made of Office-31 and Caltech-256, for research",
    division=Division(train_fraction=0.3),
    flips=True,
    read=FolderReader(
        domains={"amazon": (), "caltech": ("caltech10", "caltech_10"), "dslr": (), "webcam": ()},
        classes=_CLASSES,
    ),
)
