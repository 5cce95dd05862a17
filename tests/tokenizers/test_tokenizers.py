"""The tokenizer: training, special ids, the piece table, sampling."""

import concurrent.futures
import subprocess
import sys
from collections import Counter
from math import exp
from pathlib import Path

import pytest

from pellucid.config import TokenizerConfig
from pellucid.errors import InputError, PellucidError
from pellucid.tokenizers.sentencepiece import Tokenizer, reservoir
from tests import made_up

KINDS = ["unigram", "bpe"]


def texts(count: int = 300) -> list[str]:
    return [side for pair in made_up.pairs(count) for side in pair]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_give_the_same_bytes(kind: str) -> None:
    config = TokenizerConfig(model_type=kind, vocab_size=400, input_sentence_size=200)
    here = Tokenizer.train(texts(), config)
    assert here.model == Tokenizer.train(texts(), config).model
    code = (
        "from tests.tokenizers.test_tokenizers import *\n"
        f"config = TokenizerConfig(model_type={kind!r}, vocab_size=400, input_sentence_size=200)\n"
        "print(Tokenizer.train(texts(), config).sha256)"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here.sha256
    assert there.stderr == ""  # SentencePiece keeps quiet
    assert Tokenizer.train(texts(), config.changed(seed=1)).model != here.model


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_and_tags(kind: str) -> None:
    made = Tokenizer.train(
        texts(), TokenizerConfig(model_type=kind, vocab_size=400), ("de", "en", "pt_BR")
    )
    assert (made.pad_id, made.unk_id, made.bos_id, made.eos_id) == (0, 1, 2, 3)
    assert made.languages == ("de", "en", "pt_BR")
    assert [made.tag_id(language) for language in made.languages] == [4, 5, 6]
    assert made.vocab_size == 400
    assert made.model_type == kind
    plain = made.encode("A map.")
    assert made.encode("A map.", target_language="pt_BR") == [6, *plain, 3]
    assert made.encode_batch(["A map."], target_language="de") == [[4, *plain, 3]]
    assert made.decode([2, 6, *plain, 3, 0, 0]) == "A map."
    with pytest.raises(InputError, match=r"no tag for language 'fr': it has de, en, pt_BR"):
        made.tag_id("fr")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "typed",
    [
        *("</s>", "<2fr>", "<s> x </s>", "<unk>", "<pad>", "<0x41>", "<2fr>Bonjour", "▁", "▁▁a ▁"),
        *("\x00", "\u202f!", "\xa0", "l’été", "l'été", "👩\u200d👩\u200d👧 😀", "  a  b  "),
    ],
)
def test_what_a_person_types_stays_text(kind: str, typed: str) -> None:
    tokenizer = made_up.tokenizer(kind)
    ids = tokenizer.encode(typed)
    assert {tokenizer.pieces[i].kind for i in ids} <= {"text", "byte"}
    assert tokenizer.decode(ids) == typed


def test_a_corpus_full_of_special_tokens_teaches_none() -> None:
    hostile = ["<2fr> </s> <s> <unk> <pad> <0x41>", "▁▁▁ ▁x", "\x00\x00", "▅ ▅▅"] * 200
    for kind in KINDS:
        made = Tokenizer.train(texts() + hostile, TokenizerConfig(model_type=kind, vocab_size=400))
        for text in hostile[:4]:
            assert made.decode(made.encode(text)) == text
            assert min(made.encode(text)) > made.tag_id("fr")


def test_half_a_surrogate_pair_is_read_as_a_replacement_character() -> None:
    tokenizer = made_up.tokenizer()
    assert tokenizer.decode(tokenizer.encode("a\ud83dz")) == "a\ufffdz"
    assert tokenizer.decode(tokenizer.sample("a\ud83dz", 0, 0.5)) == "a\ufffdz"


def test_the_piece_table_is_readable() -> None:
    rows = made_up.tokenizer().pieces
    assert [row.id for row in rows] == list(range(len(rows)))
    assert [row.piece for row in rows[:6]] == ["<pad>", "<unk>", "<s>", "</s>", "<2en>", "<2fr>"]
    kinds = Counter(row.kind for row in rows)
    assert kinds == {"special": 4, "tag": 2, "byte": 256, "text": len(rows) - 262}
    by_piece = {row.piece: row for row in rows}
    assert by_piece["<0x41>"].readable == "byte 41 A"
    assert by_piece["<0xE2>"].readable == "byte E2"
    assert by_piece["▁the"].readable == "␣the"
    assert by_piece["▁the"].score < 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_too_large_names_the_largest(kind: str) -> None:
    corpus = texts(60)
    with pytest.raises(InputError, match="too large for this corpus") as error:
        Tokenizer.train(corpus, TokenizerConfig(model_type=kind, vocab_size=90_000))
    largest = int(str(error.value).split("set it to ")[1].split()[0])
    assert Tokenizer.train(corpus, TokenizerConfig(model_type=kind, vocab_size=largest))
    with pytest.raises(InputError):
        Tokenizer.train(corpus, TokenizerConfig(model_type=kind, vocab_size=largest + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_too_small_names_the_smallest(kind: str) -> None:
    with pytest.raises(InputError, match="too small for the characters and bytes") as error:
        Tokenizer.train(texts(), TokenizerConfig(model_type=kind, vocab_size=264))
    smallest = int(str(error.value).split("set it to ")[1].split()[0])
    assert Tokenizer.train(texts(), TokenizerConfig(model_type=kind, vocab_size=smallest))


@pytest.mark.parametrize("nothing", [[], ["", ""]])
def test_no_text_is_an_error(nothing: list[str]) -> None:
    with pytest.raises(InputError, match="the corpus is empty"):
        Tokenizer.train(nothing, TokenizerConfig(vocab_size=400))


def test_save_and_load(tmp_path: Path) -> None:
    tokenizer = made_up.tokenizer()
    tokenizer.save(tmp_path / "t.model")
    assert Tokenizer.load(tmp_path / "t.model").pieces == tokenizer.pieces
    assert Tokenizer.load(tokenizer.model).sha256 == tokenizer.sha256
    with pytest.raises(InputError, match=r"cannot read the tokenizer .*: No such file"):
        Tokenizer.load(tmp_path / "none")
    for damaged in (b"", b"no model", tokenizer.model[:500]):
        (tmp_path / "t.model").write_bytes(damaged)
        with pytest.raises(PellucidError, match=r"t\.model: this .*SentencePiece model"):
            Tokenizer.load(tmp_path / "t.model")


def test_ids_outside_the_vocabulary_are_refused() -> None:
    for wrong in (-1, 420, 10**9):
        with pytest.raises(InputError, match=f"token id {wrong} is outside"):
            made_up.tokenizer().decode([5, wrong])


def test_a_sample_is_uniform_and_bounded() -> None:
    assert reservoir(range(5), 10, seed=0) == [0, 1, 2, 3, 4]
    counts = Counter(x for seed in range(2000) for x in reservoir(range(20), 5, seed))
    assert set(counts) == set(range(20))
    assert all(400 < count < 600 for count in counts.values())  # 500 each, sigma 19


@pytest.mark.parametrize(("kind", "strength"), [("unigram", 0.2), ("bpe", 0.2)])
def test_sampling_repeats_in_any_thread_and_process(kind: str, strength: float) -> None:
    tokenizer = made_up.tokenizer(kind)
    lines = texts(40)
    here = [tokenizer.sample(text, seed, strength) for seed, text in enumerate(lines)]
    again = Tokenizer.load(tokenizer.model)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        there = pool.map(again.sample, lines, range(len(lines)), [strength] * len(lines))
        assert list(there) == here
    code = (
        "from tests.tokenizers.test_tokenizers import *\n"
        f"tokenizer = made_up.tokenizer({kind!r})\n"
        f"print([tokenizer.sample(t, s, {strength}) for s, t in enumerate(texts(40))])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(here)
    assert here != [tokenizer.encode(text) for text in lines]
    other = [tokenizer.sample(text, seed + 1000, strength) for seed, text in enumerate(lines)]
    assert here != other


def test_unigram_sampling_draws_each_cut_as_often_as_it_is_probable() -> None:
    tokenizer = made_up.tokenizer()
    scores = {row.piece: row.score for row in tokenizer.pieces if row.kind == "text"}
    alpha, draws = 0.1, 4000

    def cuts(rest: str) -> list[list[str]]:
        if not rest:
            return [[]]
        heads = [rest[:n] for n in range(1, len(rest) + 1) if rest[:n] in scores]
        return [[head, *tail] for head in heads for tail in cuts(rest[len(head) :])]

    words = {word for text in texts(50) for word in text.split() if len(word) < 12}
    word = max(sorted(words), key=lambda word: len(cuts("▁" + word)))
    weights = {tuple(cut): exp(alpha * sum(scores[p] for p in cut)) for cut in cuts("▁" + word)}
    total = sum(weights.values())
    drawn = Counter(
        tuple(tokenizer.pieces[i].piece for i in tokenizer.sample(word, seed, alpha))
        for seed in range(draws)
    )
    assert set(drawn) <= set(weights)
    assert len(weights) > 3
    for cut, weight in weights.items():
        share = weight / total
        assert abs(drawn[cut] / draws - share) < 5 * (share * (1 - share) / draws) ** 0.5 + 1e-9


def test_bpe_dropout_of_everything_leaves_characters() -> None:
    tokenizer = made_up.tokenizer("bpe")
    pieces = [tokenizer.pieces[i].piece for i in tokenizer.sample("the map", 1, 1.0)]
    assert pieces == list("▁the▁map")
