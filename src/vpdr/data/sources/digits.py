"""Digits: ten digits in four looks, each from its own public set."""

from vpdr.data.division import Division
from vpdr.data.readers.digit_sets import read_digits
from vpdr.data.sources.facts import DomainFacts
from vpdr.data.sources.source import Source

DIGITS = Source(
    name="digits",
    title="Digits",
    modality="image",
    domains=(
        DomainFacts(
            name="mnist",
            title="MNIST",
            train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        ),
        DomainFacts(
            name="usps",
            title="USPS",
            train=(1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644),
            test=(359, 264, 198, 166, 200, 160, 170, 147, 166, 177),
        ),
        DomainFacts(
            name="svhn",
            title="SVHN",
            train=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
            test=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
        ),
        DomainFacts(name="syn", title="Synthetic Digits", train=(10_000,), test=(2_000,)),
    ),
    class_names=tuple(str(digit) for digit in range(10)),
    needs="MNIST: the four idx files (.gz or not) or mnist*.npz; USPS: usps*.h5, usps*.npz or usps.bz2 and "
    "usps.t.bz2; SVHN: train_32x32.mat and test_32x32.mat; Synthetic Digits: imgs_train/0..9/* and "
    "imgs_valid/0..9/*; anywhere up to three folders deep",
    where="MNIST: https://ossci-datasets.s3.amazonaws.com/mnist; USPS: "
    "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps; SVHN: "
    "http://ufldl.stanford.edu/housenumbers (format 2); Synthetic Digits: the set of 12,000 pictures on "
    "https://www.kaggle.com/datasets/prasunroy/synthetic-digits",
    licence="MNIST: CC BY-SA 3.0; SVHN: non-commercial use; the others state none that we know of",
    division=Division(train_fraction=0.1),
    flips=False,
    read=read_digits,
)
