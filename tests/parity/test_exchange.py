"""Imported and exported models do what transformers and CTranslate2 do with the same files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import MarianMTModel, MarianTokenizer

from pellucid import load
from pellucid.bundle import Bundle
from pellucid.decoding import DecodingOptions, Result
from pellucid.decoding.engine_selection import open_ct2, open_torch
from pellucid.exchange import export_model, import_model
from pellucid.exchange.hugging_face import read_table, read_tokenizer
from pellucid.tokenizers.marian import MarianTokenizer as Ours
from tests.bundles import write_bundle
from tests.made_up import pairs
from tests.marian_models import LANGUAGES, write_marian, write_npz, write_tokenizer
from tests.parity.marian import generated, padded

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "pickled": {"safe": False},
    "tags": {"tags": LANGUAGES, "seed": 2, "activation_function": "relu"},
    "two vocabularies": {"separate": True, "seed": 3, "d_model": 48, "encoder_layers": 3},
    "unscaled gelu": {"scale_embedding": False, "activation_function": "gelu", "seed": 4,
                      "end_bias": 1.5},
    "deep decoder": {"encoder_layers": 1, "decoder_layers": 4, "encoder_attention_heads": 2,
                     "decoder_attention_heads": 2, "seed": 5, "end_bias": 3.5},
}  # fmt: skip
TEXTS = [french for _, french in pairs(40, seed=11)]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Case:
    """A folder of transformers', and the bundle made of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / "opus-mt-fr-en"
        self.peer, self.tokenizer = write_marian(self.folder, **SHAPES[name])
        self.bundle = import_model(self.folder, folder / "bundle", quantization=None)

    def sources(self) -> list[list[int]]:
        target = self.bundle.directions[-1].split("-")[1]
        return self.bundle.tokenizer.encode_batch(TEXTS, target_language=target)


@pytest.fixture(scope="module", params=SHAPES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("case"), request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("plain"), "plain")


def logits_of(peer: MarianMTModel, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    pad = peer.config.pad_token_id
    with torch.no_grad():
        mask = (source != pad).long()
        return peer(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits


def test_logits(case: Case) -> None:
    pad = case.peer.config.pad_token_id
    source = padded(case.sources()[:8], pad)
    target = torch.randint(2, pad, (8, 9))
    target[:, 0] = case.peer.config.decoder_start_token_id
    with torch.no_grad():
        mine = case.bundle.model()(source, target)
    torch.testing.assert_close(mine, logits_of(case.peer, source, target), atol=1e-5, rtol=0)


def options(beams: int, n: int, longest: int) -> DecodingOptions:
    """Their rules: stop when `beams` hypotheses have ended; only the length given counts."""
    return DecodingOptions(
        beam_size=beams, n_best=n, max_length=longest, max_length_extra=1000, patience=1.0
    )


@pytest.mark.parametrize(("beams", "n"), [(1, 1), (4, 3)])
def test_generate(case: Case, beams: int, n: int) -> None:
    """Token for token what `generate` gives, with its scores."""
    longest, compared = 14, 0
    found = open_torch(case.bundle).translate_ids(case.sources(), options(beams, n, longest))
    rules = {
        "early_stopping": beams > 1,
        "length_penalty": 1.0,
        "forced_eos_token_id": None,
    }
    theirs = generated(case.peer, case.sources(), beams, n, longest, **rules)
    for result, wanted in zip(found, theirs, strict=True):
        if result.near_tie:
            continue
        compared += 1
        assert [h.tokens for h in result.hypotheses] == [tuple(tokens) for tokens, _ in wanted]
        for h, (_, score) in zip(result.hypotheses, wanted, strict=True):
            mine = h.log_probability if beams == 1 else h.score
            assert mine == pytest.approx(score, abs=1e-4)
    assert compared > 0.7 * len(TEXTS)
    assert beams == 1 or len({h.length for r in found for h in r.hypotheses}) > 1


def same(first: list[Result], second: list[Result], near: list[Result]) -> int:
    """Equal tokens and scores where there is no near-tie; how many were compared."""
    compared = 0
    for a, b, tie in zip(first, second, near, strict=True):
        if tie.near_tie:
            continue
        compared += 1
        assert [h.tokens for h in a.hypotheses] == [h.tokens for h in b.hypotheses]
        for x, y in zip(a.hypotheses, b.hypotheses, strict=True):
            assert x.score == pytest.approx(y.score, abs=1e-4)
    return compared


@pytest.mark.parametrize("beams", [1, 4])
def test_both_engines_agree(case: Case, beams: int) -> None:
    chosen = options(beams, 1, 14)
    torch_found = open_torch(case.bundle).translate_ids(case.sources(), chosen)
    ct2_found = open_ct2(case.bundle, 1).translate_ids(case.sources(), chosen)
    assert same(torch_found, ct2_found, torch_found) > 0.7 * len(TEXTS)


def test_the_converter_of_ctranslate2_agrees(case: Case, tmp_path: Path) -> None:
    """It leaves the pad symbol out, which none of these models writes."""
    if case.bundle.config.source_vocab_size:
        pytest.skip("its converter takes one vocabulary only")
    converter = ctranslate2.converters.TransformersConverter(str(case.folder))
    theirs = ctranslate2.Translator(converter.convert(str(tmp_path / "theirs")), inter_threads=1)
    pieces = case.bundle.tokenizer.piece
    sources = case.sources()
    read = theirs.translate_batch(
        [[pieces(token, "source") for token in row] for row in sources],
        beam_size=4,
        min_decoding_length=0,
        max_decoding_length=14,
        return_scores=True,
    )
    ours = open_ct2(case.bundle, 1).translate_ids(sources, options(4, 1, 14))
    near = open_torch(case.bundle).translate_ids(sources, options(4, 1, 14))
    compared = 0
    for mine, other, tie in zip(ours, read, near, strict=True):
        if tie.near_tie:
            continue
        compared += 1
        assert [pieces(token) for token in mine.best.tokens] == other.hypotheses[0]
        if mine.best.ended == "eos":  # it does not count an end that is missing
            assert mine.best.score == pytest.approx(other.scores[0], abs=1e-4)
    assert compared > 0.7 * len(TEXTS)


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="abcdeéœ ,.!▁<>/s\u00a0\u200b\t\n☃ﬁ①", max_size=40),
    st.sampled_from(
        [
            "</s>",
            "<pad>",
            "<unk>",
            "  two  spaces ",
            "▁",
            "ﬁne ①",
            "日本語",
            "\u200b",
            "a\x00b",
            "🇫🇷👩‍🔬",
        ]
    ),
).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))


@pytest.mark.parametrize("rule", ["nmt_nfkc", "identity"])
@pytest.mark.parametrize("separate", [False, True])
def test_tokens(tmp_path: Path, rule: str, separate: bool) -> None:
    """Whatever the text, the ids of transformers' tokenizer; a tag is asked for, never typed."""
    peer = write_tokenizer(tmp_path / "t", tags=LANGUAGES, separate=separate, rule=rule)
    ours = ours_of(tmp_path / "t", separate)

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(HOSTILE, st.sampled_from(LANGUAGES))
    def check(text: str, language: str) -> None:
        tagged = peer(f">>{language}<<{text}", split_special_tokens=True).input_ids
        assert ours.encode(text, target_language=language) == tagged
        target = peer(text_target=text, split_special_tokens=True).input_ids
        assert [*ours.encode(text, side="target"), ours.eos_id] == target
        own = ours.encode(text, side="target")
        theirs = peer.decode(own, skip_special_tokens=True, use_source_tokenizer=False)
        assert ours.decode(own) == theirs

    check()
    text = "le vélo  vert"
    if rule == "nmt_nfkc":  # where spaces are normalised, the usual one after the tag is nothing
        assert ours.encode(text, target_language="deu") == peer(f">>deu<< {text}").input_ids
    assert ours.encode(">>deu<< non", target_language="fra")[1:] == [*ours.encode(">>deu<< non"), 0]


def ours_of(folder: Path, separate: bool) -> Ours:
    size = len(read_table(folder / "vocab.json"))
    named = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0}
    shared = {"share_encoder_decoder_embeddings": not separate}
    return read_tokenizer(folder, {**named, **shared})[0]


def test_there_and_back(case: Case, tmp_path: Path) -> None:
    """Import, export, import: the same bytes; and transformers reads what was exported."""
    out = export_model(case.bundle, tmp_path / "out", "huggingface")
    again = import_model(out, tmp_path / "again", directions=case.bundle.directions)
    for name in case.bundle.manifest["files"]:
        if not name.startswith(("ct2/", "MODEL.md")):
            assert (again.folder / name).read_bytes() == (case.bundle.folder / name).read_bytes()
    peer = MarianMTModel.from_pretrained(out).eval()
    source = padded(case.sources()[:4], peer.config.pad_token_id)
    target = torch.randint(2, 60, (4, 6))
    assert torch.equal(logits_of(peer, source, target), logits_of(case.peer, source, target))
    tokenizer = MarianTokenizer.from_pretrained(out)
    assert tokenizer(TEXTS).input_ids == case.tokenizer(TEXTS).input_ids
    assert peer.generation_config.decoder_start_token_id == case.bundle.tokenizer.bos_id


@pytest.mark.parametrize(
    "changes",
    [
        {"position_layout": "halves", "activation": "silu"},
        {},  # positions in turn: columns are moved
        {"tie_embeddings": "decoder", "activation": "gelu_tanh"},
        {"tie_embeddings": "none", "attention_bias": False, "feed_forward_bias": False},
    ],
)
def test_our_own_models_in_transformers(tmp_path: Path, changes: dict[str, Any]) -> None:
    bundle = write_bundle(tmp_path / "bundle", ct2=False, **changes)
    out = export_model(bundle, tmp_path / "out", "huggingface")
    peer, tokenizer = (
        MarianMTModel.from_pretrained(out).eval(),
        MarianTokenizer.from_pretrained(out),
    )
    words = bundle.tokenizer
    source = padded(words.encode_batch(TEXTS[:6], target_language="en"), words.pad_id)
    target = torch.randint(4, words.vocab_size, (6, 7))
    target[:, 0] = words.bos_id
    with torch.no_grad():
        mine = bundle.model()(source, target)
    torch.testing.assert_close(mine, logits_of(peer, source, target), atol=2e-5, rtol=0)
    for text in (*TEXTS[:6], "Ça coûte 5 € 日本 ☃"):
        assert tokenizer(f">>en<<{text}").input_ids == words.encode(text, target_language="en")
        ids = words.encode(text)
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    again = import_model(out, tmp_path / "again", directions=("fr-en", "en-fr"))
    ids = words.encode_batch(TEXTS[:6], target_language="fr")
    assert again.tokenizer.encode_batch(TEXTS[:6], target_language="fr") == ids
    first = open_torch(bundle).translate_ids(ids, options(4, 1, 12))
    assert same(first, open_torch(again).translate_ids(ids, options(4, 1, 12)), first) > 3


def test_exported_for_ctranslate2(plain: Case, tmp_path: Path) -> None:
    out = export_model(plain.bundle, tmp_path / "out", "ctranslate2", "float32")
    assert (out / "source.spm").read_bytes() == (plain.folder / "source.spm").read_bytes()
    pieces = plain.bundle.tokenizer.piece
    rows = [[pieces(token, "source") for token in row] for row in plain.sources()]
    read = ctranslate2.Translator(str(out)).translate_batch(
        rows, beam_size=1, min_decoding_length=0
    )
    ours = open_torch(plain.bundle).translate_ids(plain.sources(), DecodingOptions(beam_size=1))
    for mine, other in zip(ours, read, strict=True):
        if mine.best.ended == "eos" and not mine.near_tie:
            assert [pieces(token) for token in mine.best.tokens] == other.hypotheses[0]


@pytest.mark.parametrize("layout", ["post", "pre", "two vocabularies", "own output"])
def test_marian_npz(tmp_path: Path, layout: str) -> None:
    """Marian's own format, against CTranslate2's converter, whose positions are put right.

    Its table of positions is that of Hugging Face and not quite Marian's, so the file that it
    gets has Marian's in it.
    """
    folder = tmp_path / "opus-mt-fr-en"
    settings = write_npz(folder, layout)
    bundle = import_model(folder, tmp_path / "bundle", quantization=None)
    assert bundle.directions == ("fr-en",)
    waves = 10000 ** (np.arange(16) / 15)
    angles = np.arange(256)[:, None] / waves
    arrays = dict(np.load(folder / "model.npz"))
    arrays["Wpos"] = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    np.savez(tmp_path / "with.npz", **arrays)
    vocabularies = [str(folder / name) for name in settings["vocabs"]]
    converter = ctranslate2.converters.MarianConverter(str(tmp_path / "with.npz"), vocabularies)
    theirs = ctranslate2.Translator(converter.convert(str(tmp_path / "theirs")), inter_threads=1)
    words = bundle.tokenizer
    sources = words.encode_batch(TEXTS, target_language="en")
    found = open_torch(bundle).translate_ids(sources, options(4, 1, 14))
    read = theirs.translate_batch(
        [[words.piece(t, "source") for t in row[:-1]] for row in sources],  # it adds the end
        beam_size=4,
        min_decoding_length=0,
        max_decoding_length=14,
        return_scores=True,
    )
    compared = 0
    for mine, other in zip(found, read, strict=True):
        if mine.near_tie:
            continue
        compared += 1
        assert [words.piece(token) for token in mine.best.tokens] == other.hypotheses[0]
        if mine.best.ended == "eos":
            assert mine.best.score == pytest.approx(other.scores[0], abs=1e-3)
    assert compared > 0.7 * len(TEXTS)
    ct2 = open_ct2(bundle, 1).translate_ids(sources, options(4, 1, 14))
    assert same(found, ct2, found) == compared


def test_translating_looking_and_aligning(case: Case) -> None:
    """The whole way, from text to text, like with a model of our own."""
    translator = load(case.bundle.folder)
    assert isinstance(translator.bundle, Bundle)
    target = case.bundle.directions[-1].split("-")[1]
    made = translator.translate(TEXTS[:5], target=target, attention=True, max_length=8)
    for text, one in zip(TEXTS, made, strict=False):
        sentence = one.sentences[0]
        assert one.source == text
        assert "".join(sentence.source_tokens).replace("▁", " ").strip() == sentence.source
        assert sentence.alignment is not None
        assert len(sentence.alignment) == len(sentence.best.tokens)
        assert all(0 <= place < len(sentence.source_tokens) for place in sentence.alignment)
    others = translator.alternatives(TEXTS[0], 0, 3, target=target, max_length=8)
    assert len({other.token for other in others}) == 3
    forced = translator.translate([TEXTS[0]], target=target, prefix="The baker", max_length=12)
    assert forced[0].text.startswith("The baker")
    look = translator.look(TEXTS[0], target=target, max_length=8)
    assert look.tokens.source[-1].piece == "</s>"
    assert len(look["decoder.0.cross.weights"][0, 0]) == len(look.tokens.source)
