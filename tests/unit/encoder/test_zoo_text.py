"""Text backbones: MiniLM with its real weights, RoBERTa in its public format."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer, BertModel, RobertaConfig, RobertaModel

from tests.unit.encoder.conftest import full_batch, make_frozen_encoder, make_personal_encoder, save_tokeniser, stream
from vpdr.encoder.backbone import TokenInputs
from vpdr.encoder.zoo import BACKBONES, find_installed_weights, load_backbone
from vpdr.validation import InvalidInput

SPORT = [
    "The goalkeeper saved a penalty in the last minute of the match.",
    "She won the marathon in a new world record.",
    "The coach changed three players after half time.",
    "A late try gave the rugby team its first win of the season, and the crowd sang long after the whistle.",
]
MONEY = [
    "Shares fell after the bank reported a loss.",
    "The central bank raised interest rates again.",
    "Oil prices rose on fears of a shortage.",
    "The company will cut a thousand jobs to save costs.",
]


@pytest.fixture(scope="module")
def reference():
    directory = find_installed_weights(BACKBONES["minilm"].package, "model")
    return AutoTokenizer.from_pretrained(str(directory)), BertModel.from_pretrained(str(directory)).eval()


@torch.no_grad()
def by_transformers(tokeniser, model, texts):
    batch = tokeniser(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
    hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None]
    return (hidden * mask).sum(1) / mask.sum(1)


def test_minilm_gives_the_features_of_transformers(minilm, reference):
    texts = [*SPORT, "word " * 300, ""]
    torch.testing.assert_close(minilm.pooled_features(texts), by_transformers(*reference, texts), rtol=1e-4, atol=1e-5)


def test_a_text_has_the_same_feature_in_any_batch_and_in_its_own_row(minilm):
    together = minilm.pooled_features(SPORT, batch_size=4)
    alone = torch.cat([minilm.pooled_features([text]) for text in SPORT])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
    subset = minilm.pooled_features(SPORT, rows=torch.tensor([2, 0]))
    torch.testing.assert_close(subset, alone[[2, 0]], rtol=1e-4, atol=1e-5)


def test_a_large_batch_in_slices_gives_every_text_its_own_feature(minilm):
    texts = [f"{SPORT[n % 4]} " * (1 + n % 3) for n in range(40)]
    inputs = full_batch(minilm.make_inputs(texts))
    with torch.no_grad():
        together = minilm.features(inputs)
    torch.testing.assert_close(together, minilm.pooled_features(texts, batch_size=1), rtol=1e-4, atol=1e-5)


def test_tokens_are_padded_to_the_longest_of_their_batch(minilm):
    tokens = minilm.make_inputs(["one", "one two three", "four " * 500])
    assert isinstance(tokens, TokenInputs)
    assert tokens.lengths.tolist() == [3, 5, 128]
    first = tokens.batch(torch.tensor([0, 1]))
    assert first.shape == (2, 2, 5)
    assert first[0, 1].tolist() == [1, 1, 1, 0, 0]
    assert first[0, 0, 3:].tolist() == [tokens.padding_id] * 2
    subset = tokens.take(torch.tensor([2, 1])).take(torch.tensor([1]))
    assert torch.equal(subset.batch(torch.tensor([0]))[0, 0], first[1, 0])
    assert len(subset) == 1


def test_adapters_after_each_block_train_on_real_sentences(minilm):
    frozen_encoder = make_frozen_encoder(minilm, dim=32)
    personal = make_personal_encoder(frozen_encoder, width=8)
    assert list(personal.adapters) == ["0", "1", "2", "3", "4", "5"]
    inputs = full_batch(minilm.make_inputs([*SPORT, *MONEY]))
    public = frozen_encoder.projection(minilm.features(inputs))
    assert torch.equal(personal(public, inputs).detach(), public.detach())
    head = torch.nn.Linear(32, 2)
    torch.nn.init.kaiming_uniform_(head.weight, generator=stream("head"))
    optimiser = torch.optim.Adam(personal.parameters(), lr=1e-2)
    labels = torch.tensor([0] * 4 + [1] * 4)
    losses = []
    for _ in range(8):
        loss = torch.nn.functional.cross_entropy(head(personal(public, inputs)), labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(adapter.up.weight.abs().max() > 0 for adapter in personal.adapters.values())


def test_roberta_in_its_public_format_gives_the_features_of_transformers(tmp_path, monkeypatch):
    """A network with fewer layers and words than the real one."""
    config = RobertaConfig(
        vocab_size=100,
        num_hidden_layers=2,
        max_position_embeddings=514,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        model = RobertaModel(config).eval()
    model.save_pretrained(tmp_path)
    save_tokeniser(tmp_path)
    spec = BACKBONES["roberta_base"]
    smaller = replace(spec.load, settings={**spec.load.settings, "vocab_size": 100, "num_hidden_layers": 2})
    monkeypatch.setitem(BACKBONES._entries, "roberta_base", replace(spec, load=smaller))
    backbone = load_backbone("roberta_base", str(tmp_path))
    ids = torch.tensor([[0, 9, 8, 2], [0, 7, 2, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.no_grad():
        theirs = model(input_ids=ids, attention_mask=mask).last_hidden_state[:, 0]
        ours = backbone.network.features(torch.stack([ids, mask], 1), {})
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_checkpoint_without_a_tokeniser_is_one_line(minilm, tmp_path):
    torch.save(minilm.network.module.state_dict(), tmp_path / "minilm.pth")
    with pytest.raises(InvalidInput, match="expected a tokeniser in"):
        load_backbone("minilm", str(tmp_path / "minilm.pth"))
