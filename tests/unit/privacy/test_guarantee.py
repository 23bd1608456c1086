"""Terms of a guarantee are read from text."""

import pytest

from tests.unit.privacy.test_ledger import BUDGET
from vpdr import Adjacency, EncoderKind, Ledger
from vpdr.privacy import GaussianEvent, GuaranteeLevel, Receipt
from vpdr.privacy.guarantee import Arithmetic, GuaranteeTerms, declared_encoder
from vpdr.privacy.ledger import LedgerEntry, entry_from_dict, entry_to_dict
from vpdr.validation import InvalidInput


def test_terms_are_read_from_text() -> None:
    terms = GuaranteeTerms(adjacency="replace-same-label", encoder="personal", counts="public", basis="proved")
    assert terms.encoder is EncoderKind.PERSONAL
    assert Receipt(events=(GaussianEvent(1.0),), terms=terms).level is GuaranteeLevel.CONDITIONAL
    with pytest.raises(InvalidInput, match="encoder kind must be one of public, transcript, personal"):
        GuaranteeTerms(adjacency="replace-one", encoder="frozen", counts="public", basis="proved")
    assert Ledger(client="a", budget=BUDGET, adjacency="replace-one").adjacency is Adjacency.REPLACE_ONE


def test_floating_point_noise_is_proved_for_nobody() -> None:
    """It is what terms state if they state nothing, so neither plug-ins nor old ledgers can be proved by it."""
    terms = {"adjacency": "replace-one", "encoder": "public", "counts": "private", "basis": "proved"}
    levels = {
        arithmetic: Receipt(events=(GaussianEvent(1.0),), terms=GuaranteeTerms(**terms, arithmetic=arithmetic)).level
        for arithmetic in Arithmetic
    }
    assert levels == {Arithmetic.INTEGER: GuaranteeLevel.PROVED, Arithmetic.FLOATING: GuaranteeLevel.CONDITIONAL}
    silent = Receipt(events=(GaussianEvent(1.0),), terms=GuaranteeTerms(**terms))
    assert silent.level is GuaranteeLevel.CONDITIONAL
    old = entry_to_dict(LedgerEntry(1, silent))
    del old["terms"]["arithmetic"]
    assert entry_from_dict(old).receipt == silent


def test_an_encoder_kind_is_read_in_both_spellings() -> None:
    """Ledgers and policies of the first version say `transcript` and `accounted`."""
    assert EncoderKind("broadcast") is EncoderKind("transcript") is declared_encoder("broadcast")
    assert EncoderKind("dp_trained") is EncoderKind("accounted")
    with pytest.raises(InvalidInput, match="choose one of public, broadcast, personal"):
        declared_encoder("dp_trained")


def test_the_old_word_for_a_broadcast_encoder_gives_a_hint(caplog) -> None:
    assert declared_encoder("broadcast") is EncoderKind.BROADCAST
    assert caplog.messages == []
    assert declared_encoder("transcript") is EncoderKind.BROADCAST
    expected = "encoder transcript is now encoder broadcast; the old spelling is accepted for one more version"
    assert caplog.messages == [expected]
