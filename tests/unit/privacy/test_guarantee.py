"""Terms of a guarantee are read from text."""

import pytest

from tests.unit.privacy.test_ledger import BUDGET
from vpdr import Adjacency, EncoderKind, Ledger
from vpdr.privacy import GaussianEvent, GuaranteeLevel, Receipt
from vpdr.privacy.guarantee import GuaranteeTerms, declared_encoder
from vpdr.validation import InvalidInput


def test_terms_are_read_from_text() -> None:
    terms = GuaranteeTerms(adjacency="replace-same-label", encoder="personal", counts="public", basis="proved")
    assert terms.encoder is EncoderKind.PERSONAL
    assert Receipt(events=(GaussianEvent(1.0),), terms=terms).level is GuaranteeLevel.CONDITIONAL
    with pytest.raises(InvalidInput, match="encoder kind must be one of public, transcript, personal"):
        GuaranteeTerms(adjacency="replace-one", encoder="frozen", counts="public", basis="proved")
    assert Ledger(client="a", budget=BUDGET, adjacency="replace-one").adjacency is Adjacency.REPLACE_ONE


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
