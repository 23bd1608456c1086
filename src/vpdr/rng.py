"""All randomness: named streams of simulations (`Streams`), and noise that is exact.

The noise of a release, and what it is added to, are whole numbers.

A sum of real numbers in floating point depends on their order, and noise in floating point cannot reach every
number: what it reaches differs between neighbours, so that some outputs tell them apart with certainty (Mironov,
2012). Here nothing private passes through floating-point noise:

1. `Grid.clip` turns each sample into whole multiples of a public step, with a norm that is checked without rounding.
   Sums of whole numbers are exact, so neighbours differ by what one sample contributes and by nothing else.
2. `rounded_gaussian` draws round(s Z) for a standard normal Z and a whole number s. For whole q,
   q + round(s Z) = round(q + s Z): the release is post-processing of the Gaussian mechanism on real numbers, so it has
   its trade-off curve and composes like it. (The discrete Gaussian of Canonne, Kamath and Steinke, 2020, has another
   curve: accounted for by concentrated differential privacy it needs more noise for the same ε and δ.)
3. `discrete_laplace` draws with probability proportional to exp(-|x|/t), for selections.

Division by counts and conversion to single precision come after the noise. docs/privacy.md, section 9, has the proofs.

Both samplers split a magnitude into an integer part k and a fraction x, as Karney (2016) does for the normal
distribution. Every decision is made on the first 64 bits of a random number; where these bits do not decide, more
are drawn, until the decision does not depend on any rounding. So there is no distance from the stated distribution
to charge to δ. OpenDP has exact samplers too, but none of the rounded Gaussian, and is an installation of 265 MB.
"""

import decimal
import hashlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch

from vpdr.types import Float64, Int64, Tensor
from vpdr.validation import InvalidInput

_STATE_WORDS = 624  # the state of a Mersenne twister
_FRESH_FLAGS = np.array([1, 1, 0, 0], dtype=np.int32)  # as after seeding: no draw yet, the next one twists
_STATE_OFFSET, _FLAG_BYTES = 24, slice(8, 24)  # where torch stores the state, and the flags before it


@dataclass(frozen=True, slots=True)
class Streams:
    """All reproducible randomness of one run, independent of the order of clients and of parallelism.

    Whoever knows the seed knows every draw. Privacy noise that must stay secret comes from the operating
    system (`vpdr.mechanisms.SystemNoise`).

    >>> first, second = (torch.rand(1, generator=Streams(0).generator("init")) for _ in range(2))
    >>> bool(first == second)
    True
    """

    seed: int  # of the run
    branch: str = ""  # the name of a fork; empty for the run's own streams

    def generator(self, purpose: str, *, client: str | int = "", round: int = 0) -> torch.Generator:
        """A fresh generator for one purpose, client and round: the same arguments give the same draws."""
        key = f"{self.seed}/{self.branch}/{purpose}/{client}/{round}".encode()
        # the whole state comes from the key: torch's own seeding uses only 32 bits of it
        entropy = int.from_bytes(hashlib.sha256(key).digest(), "big")
        words = np.random.SeedSequence(entropy).generate_state(_STATE_WORDS, np.uint32)
        rng = torch.Generator()
        state = rng.get_state().numpy().copy()
        state[_FLAG_BYTES] = _FRESH_FLAGS.view(np.uint8)
        state[_STATE_OFFSET : _STATE_OFFSET + 8 * _STATE_WORDS] = words.astype(np.uint64).view(np.uint8)
        rng.set_state(torch.from_numpy(state))
        return rng

    def key(self, purpose: str) -> bytes:
        """32 bytes for one purpose, for a keyed hash; as public as the seed."""
        return hashlib.sha256(f"{self.seed}/{self.branch}/{purpose}".encode()).digest()

    def fork(self, branch: str) -> "Streams":
        """Independent streams: whoever holds them cannot repeat a draw of the original streams."""
        key = hashlib.sha256(f"{self.seed}/{self.branch}/{branch}".encode()).hexdigest()
        return Streams(int(key, 16), branch)


# Exact noise on a grid.

# With these limits no whole number leaves the 64 bits of an integer: |sum| ≤ 2³⁵·2²⁶ = 2⁶¹, |noise| ≤ 2⁶².
RADIUS_BITS = 26  # a clipped sample has a norm of at most 2²⁶ steps; its square, 2⁵², is exact in double precision
STD_BITS = 46  # the grid is made so coarse that the noise is at most 2⁴⁶ steps for a sensitivity of one radius
MAX_SCALE = 2**52  # of the noise, in steps
MAX_SAMPLES = 2**35
_MAX_NOISE, _MAX_OUTPUT = 2**62, 2**61
_MIN_EXPONENT = -1000  # of a step: its inverse is finite

_CLIP_MARGIN = 2.0**-30  # samples are clipped to this much less than the radius, so that rounding never exceeds it
_NOISE_MARGIN = 2.0**-40  # noise is this much larger, more than the rounding of the few products that give its scale
_BLOCK_NUMBERS = 2**16  # numbers that are clipped at once: they fit into a cache


@dataclass(frozen=True, slots=True)
class Grid:
    """The whole multiples of a public step, a power of two.

    Guarantee: all grids are made from public numbers. `clip` is a function of each sample alone, up to the last
    bit, and its norm is at most `steps(radius)`, whatever the sample is.

    >>> grid = Grid.for_noise(radius=5.0, std=100.0)
    >>> grid.step, grid.steps(5.0)
    (1.1920928955078125e-07, 41943040)
    """

    step: float

    @classmethod
    def for_noise(cls, radius: float, std: float) -> "Grid":
        """The finest grid on which the radius is at most 2²⁶ steps, and the scale of the noise at most 2⁴⁶."""
        exponent = max(math.frexp(radius)[1] - RADIUS_BITS, math.frexp(std)[1] - STD_BITS, _MIN_EXPONENT)
        return cls(math.ldexp(1.0, exponent))

    def steps(self, radius: float) -> int:
        """The number of whole steps in a radius; 0 where the noise is so large that nothing else matters."""
        return math.floor(radius / self.step)

    def clip(self, vectors: Float64[Tensor, "n d"], radius: float) -> Int64[Tensor, "n d"]:
        """Scale each row down to the radius, and round it towards zero to whole steps.

        Rounding towards zero makes no row longer. The norm of the result is computed without rounding: sums of
        squares below 2⁵³ are exact in double precision, and larger ones cannot become smaller than 2⁵³. A row whose
        norm is not within the radius, because it overflows or is not a number, becomes zero.
        """
        bound = self.steps(radius)
        clipped = torch.empty(vectors.shape, dtype=torch.int64)
        for rows, block, squares in _blocks(vectors):
            norms = _row_squares(block, squares).sqrt_()
            block *= (bound * (1 - _CLIP_MARGIN) / norms).clamp_(max=1 / self.step)
            whole = clipped[rows].copy_(block[: len(clipped[rows])])
            block[: len(whole)] = whole
            is_within = _row_squares(block, squares)[: len(whole)] <= bound**2
            if not bool(is_within.all()):
                whole *= is_within
        return clipped

    def noise_scale(self, stds: Float64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        """Standard deviations in whole steps, rounded up."""
        scale = (stds * ((1 + _NOISE_MARGIN) / self.step)).ceil_()
        if not bool((scale <= MAX_SCALE).all()):
            raise InvalidInput(
                f"noise of {float(scale.max()):.3g} steps of the grid is too much for 64-bit integers: "
                "the sensitivity is too large for the clip norm"
            )
        return scale.clamp_(min=1).to(torch.int64)

    def to_real(self, whole: Int64[Tensor, "..."]) -> Float64[Tensor, "..."]:
        """The numbers that whole multiples of the step stand for."""
        return whole.double() * self.step


def row_norms(vectors: Float64[Tensor, "n d"]) -> Float64[Tensor, "n 1"]:
    """The norm of each row, up to the last bit a function of this row alone."""
    norms = torch.empty(len(vectors), 1, dtype=torch.float64)
    for rows, block, squares in _blocks(vectors):
        norms[rows] = _row_squares(block, squares)[: len(norms[rows])].sqrt_()
    return norms


def _blocks(vectors: Float64[Tensor, "n d"]) -> Iterator[tuple[slice, Float64[Tensor, "b d"], Float64[Tensor, "b d"]]]:
    """Blocks of rows, of a size that depends on the dimension only, and memory for as many numbers.

    How the sum of a row is rounded may depend on the shape of the matrix that the row is in. All blocks have one
    shape (the last is filled up), so a row is clipped to the same whole numbers whatever the other rows are. The
    memory is that of the block before: new memory costs more time than the computation.
    """
    count, dim = vectors.shape
    size = max(1, _BLOCK_NUMBERS // max(dim, 1))
    block, squares = torch.zeros(2, size, dim, dtype=torch.float64)
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        block[rows.stop - start :] = 0
        block[: rows.stop - start] = vectors[rows]
        yield rows, block, squares


def _row_squares(block: Float64[Tensor, "b d"], squares: Float64[Tensor, "b d"]) -> Float64[Tensor, "b 1"]:
    return torch.mul(block, block, out=squares).sum(dim=1, keepdim=True)


def add_noise(whole: Int64[Tensor, "..."], noise: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
    """The noisy whole numbers.

    Noise beyond 2⁶² was cut off there, and the result is cut off at 2⁶¹, where it would be without that: cutting off
    is post-processing of the exact sum.
    """
    return (whole + noise).clamp(-_MAX_OUTPUT, _MAX_OUTPUT)


# Exact samplers. A magnitude is k + x: the integer k has probability proportional to `weight(k)`, and a uniform x is
# accepted with probability exp(-excess(k, x)), so that the density at k + x is that of the normal or exponential
# distribution. Its multiple by a whole number is rounded to the nearest (or, for Laplace, to the next lower) integer.

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Whole: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
RandomBytes: TypeAlias = Callable[[int], bytes]

_PREFIX_BITS = 64
_FIRST_EXTENSION = 192  # bits that are added where 64 do not decide; twice as many the next time
_GUARD_BITS = 16  # of a decision beyond the precision of its terms
# numpy documents its exp to a few units of 2⁻⁵³; a decision by double precision has 2¹² times as much room
FLOAT_MARGIN = 2.0**-40


@dataclass(frozen=True, slots=True)
class Shape:
    """The distribution of a magnitude in units of its scale."""

    weight: Callable[[Any], Any]  # the exponent of the weight of an integer part
    excess: Callable[[Any, Any], Any]  # the exponent that a fraction adds to it
    to_nearest: bool  # whether multiples are rounded to the nearest integer, or down


NORMAL = Shape(weight=lambda k: k * k / 2, excess=lambda k, x: x * (2 * k + x) / 2, to_nearest=True)
EXPONENTIAL = Shape(weight=lambda k: k, excess=lambda _, x: x, to_nearest=False)


def rounded_gaussian(scales: Int64[Tensor, "..."], random_bytes: RandomBytes = os.urandom) -> Int64[Tensor, "..."]:
    """round(s Z) for a standard normal Z of its own for each scale s, exactly."""
    return _draw(NORMAL, scales, random_bytes)


def discrete_laplace(scales: Int64[Tensor, "..."], random_bytes: RandomBytes = os.urandom) -> Int64[Tensor, "..."]:
    """Whole numbers x with probability proportional to exp(-|x|/t) for each scale t, exactly.

    For an exponential E the largest integer below t E is geometric with parameter exp(-1/t); a sign makes it
    two-sided, and one of the two zeros is drawn again.
    """
    return _draw(EXPONENTIAL, scales, random_bytes)


def _draw(
    shape: Shape, scales: Int64[Tensor, "..."], random_bytes: RandomBytes, margin: float = FLOAT_MARGIN
) -> Int64[Tensor, "..."]:
    """Attempts for all numbers at once, until each has been accepted."""
    flat = scales.flatten().numpy()
    if len(flat) and not (int(flat.min()) >= 1 and int(flat.max()) <= MAX_SCALE):
        raise InvalidInput(f"the scale of exact noise must be a whole number from 1 to 2^52, got {int(flat.max())}")
    drawn, pending = np.empty(len(flat), dtype=np.int64), np.arange(len(flat))
    while len(pending):
        integers, fractions, tests = np.frombuffer(random_bytes(24 * len(pending)), dtype=np.uint64).reshape(3, -1)
        signs, integers = integers & np.uint64(1), integers & ~np.uint64(1)  # the lowest bit is the sign
        own = flat[pending]
        magnitudes, accepted, certain = attempt(shape, own, integers, fractions, tests, margin)
        for index in np.flatnonzero(~certain):
            words = int(integers[index]), int(fractions[index]), int(tests[index])
            magnitudes[index], accepted[index] = attempt_exactly(shape, int(own[index]), words, random_bytes)
        if not shape.to_nearest:
            accepted &= (magnitudes > 0) | (signs == 0)
        drawn[pending[accepted]] = np.where(signs == 0, magnitudes, -magnitudes)[accepted]
        pending = pending[~accepted]
    return torch.from_numpy(drawn).reshape(scales.shape)


def attempt(
    shape: Shape, scales: Whole, integers: Words, fractions: Words, tests: Words, margin: float = FLOAT_MARGIN
) -> tuple[Whole, Mask, Mask]:
    """Magnitudes, whether they are accepted, and whether the 64 bits of each word decide both for certain.

    The words are the first bits of three uniform numbers: that of k (63 bits), of x, and of the acceptance.
    """
    limits = np.array([float(limit) for limit in _cumulative(shape, 128)])
    uniform = integers * 2.0**-_PREFIX_BITS
    k = np.searchsorted(limits + margin, uniform, side="right")
    certain = k == np.searchsorted(limits - margin, uniform, side="right")
    chances = np.exp(-shape.excess(k, fractions * 2.0**-_PREFIX_BITS))
    gaps = chances - tests * 2.0**-_PREFIX_BITS
    certain &= np.abs(gaps) > margin
    parts, is_certain = _multiple(scales, fractions, shape.to_nearest)
    return scales * k + parts, gaps > 0, certain & is_certain


def _multiple(scales: Whole, fractions: Words, to_nearest: bool) -> tuple[Whole, Mask]:
    """The integer part of s·x (+ 1/2), and whether the bits of x beyond the first 64 cannot change it.

    The product has 116 bits: it is computed in two words from products of half words.
    """
    half, low_bits = np.uint64(32), np.uint64(0xFFFFFFFF)
    own = scales.astype(np.uint64)
    s_high, s_low, x_high, x_low = own >> half, own & low_bits, fractions >> half, fractions & low_bits
    lowest = s_low * x_low
    middle = s_high * x_low + (lowest >> half)
    other = s_low * x_high + (middle & low_bits)
    whole = s_high * x_high + (middle >> half) + (other >> half)
    rest = (other << half) | (lowest & low_bits)
    if to_nearest:
        carry = rest >> np.uint64(_PREFIX_BITS - 1)  # adding one half overflows where the highest bit is set
        whole, rest = whole + carry, rest ^ np.uint64(1 << (_PREFIX_BITS - 1))
    # the unknown bits add less than s to `rest`
    return whole.astype(np.int64), rest <= np.uint64(2**_PREFIX_BITS - 1) - own


def attempt_exactly(
    shape: Shape, scale: int, words: tuple[int, int, int], random_bytes: RandomBytes
) -> tuple[int, bool]:
    """The magnitude of `attempt` and whether it is accepted, with as many further bits as the decisions need."""
    integer, fraction, test = words
    integer >>= 1  # without the bit of the sign
    bits, more = _PREFIX_BITS, _FIRST_EXTENSION
    while True:
        # all three continue to the same number of bits; that of k had one bit less
        integer = integer << (more + 1) | int.from_bytes(random_bytes(more // 8 + 1), "big") >> 7
        fraction, test = (each << more | int.from_bytes(random_bytes(more // 8), "big") for each in (fraction, test))
        bits, more = bits + more, 2 * more
        decided = _decide(shape, scale, (integer, fraction, test), bits)
        if decided is not None:
            return decided


def _decide(shape: Shape, scale: int, words: tuple[int, int, int], bits: int) -> tuple[int, bool] | None:
    """As `attempt`, for numbers of which this many bits are known; None where further bits could decide otherwise."""
    with decimal.localcontext(_context(bits)):
        unit = Decimal(2) ** -bits
        margin = Decimal(2) ** (_GUARD_BITS - bits)  # more than all roundings and than the unknown bits can change
        uniform, x, test = (word * unit for word in words)
        limits = _cumulative(shape, bits)
        k = sum(limit + margin <= uniform for limit in limits)
        gap = (-shape.excess(Decimal(k), x)).exp() - test
        whole = (scale * words[1] + (shape.to_nearest << (bits - 1))) >> bits
        most = (scale * (words[1] + 1) - 1 + (shape.to_nearest << (bits - 1))) >> bits
        if k != sum(limit - margin <= uniform for limit in limits) or abs(gap) <= margin or whole != most:
            return None
        return min(scale * k + whole, _MAX_NOISE), gap > 0


@lru_cache(maxsize=8)
def _cumulative(shape: Shape, bits: int) -> list[Decimal]:
    """The probabilities that an integer part is at most 0, 1, 2 and so on, up to the last that is not 1 at `bits`."""
    with decimal.localcontext(_context(bits)):
        weights = [Decimal(1)]
        while weights[-1] > Decimal(2) ** -(bits + _GUARD_BITS):
            weights.append((-shape.weight(Decimal(len(weights)))).exp())
        sums = [sum(weights[: count + 1]) for count in range(len(weights))]
        return [Decimal(each) / sums[-1] for each in sums[:-1]]


def _context(bits: int) -> decimal.Context:
    """Decimal arithmetic, correctly rounded, with some more digits than `bits` bits; exp included."""
    digits = math.ceil((bits + 3 * _GUARD_BITS) * math.log10(2))
    return decimal.Context(prec=digits, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
