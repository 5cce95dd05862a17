"""What decoding guarantees, on a trained model and a corpus of more than 500 sentences.

The cache, batches and the engine change no output; scores are those of teacher forcing; int8 costs
little; odd input is defined; the command keeps lines.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

import pellucid
from pellucid.decoding import DecodingOptions, Hypothesis, Result
from pellucid.decoding.ct2.conversion import SPECIAL
from pellucid.decoding.ct2.engine import Ct2Engine
from pellucid.decoding.ct2.specification import export
from pellucid.decoding.options import penalty
from pellucid.decoding.search.beam import beam_search
from pellucid.decoding.steps import run_to_end
from pellucid.decoding.torch.engine import TorchEngine, plan_for
from pellucid.decoding.torch.predictor import TorchPredictor
from pellucid.tokenizers.sentencepiece import UNK_ID
from pellucid.translator import TranslationReport, Translator
from tests.learn.trained import Trained

BEAM, GREEDY = DecodingOptions(beam_size=4, n_best=2), DecodingOptions(beam_size=1)
STATED_BLEU, STATED_CHRF = 1.0, 0.5  # what int8 may cost


class Corpus:
    """The trained model in both engines, sentences for it, and what it makes of them."""

    def __init__(self, trained: Trained, folder: Path) -> None:
        self.trained, self.bundle = trained, trained.bundle
        self.torch = TorchEngine(self.bundle.model(), SPECIAL)
        self.pieces = [piece.piece for piece in self.bundle.tokenizer.pieces]
        self.fp32 = self.ct2(folder / "fp32", None)
        self.int8 = self.ct2(folder / "int8", "int8")

    def ct2(self, folder: Path, quantization: str | None) -> Ct2Engine:
        export(
            self.bundle.config,
            self.bundle.weights(),
            folder,
            pieces=self.pieces,
            special=SPECIAL,
            unknown=UNK_ID,
            quantization=quantization,
        )
        return Ct2Engine(folder, self.bundle.config, SPECIAL, self.pieces, threads=1)

    @cached_property
    def sources(self) -> list[list[int]]:
        """Sentences it was not trained on, and some with their words mixed up, where it doubts."""
        texts = [one for one, _ in self.trained.unseen]
        mixed = [one.removesuffix(".").split() for one in texts[:80]]
        draw = random.Random(3)
        for words in mixed:
            draw.shuffle(words)
        texts += [" ".join(words * (1 + n % 2)) for n, words in enumerate(mixed)]
        return self.bundle.tokenizer.encode_batch(texts, target_language="xb")

    @cached_property
    def beam(self) -> list[Result]:
        return self.torch.translate_ids(self.sources, BEAM)

    @cached_property
    def greedy(self) -> list[Result]:
        return self.torch.translate_ids(self.sources, GREEDY)


@pytest.fixture(scope="module")
def corpus(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Corpus(trained, tmp_path_factory.mktemp("ct2"))
    torch.set_num_threads(threads)


def same(a: list[Result], b: list[Result], tolerance: float) -> int:
    """How many sentences are equal in tokens and scores; all must be, but for near-ties."""
    compared = 0
    for one, other in zip(a, b, strict=True):
        if one.near_tie or other.near_tie:
            continue
        compared += 1
        assert [(h.tokens, h.ended) for h in one.hypotheses] == [
            (h.tokens, h.ended) for h in other.hypotheses
        ]
        for mine, yours in zip(one.hypotheses, other.hypotheses, strict=True):
            assert mine.score == pytest.approx(yours.score, abs=tolerance)
    return compared


def best(results: list[Result]) -> list[Result]:
    return [replace(result, hypotheses=result.hypotheses[:1]) for result in results]


def test_with_cache_is_without_cache(corpus: Corpus) -> None:
    """Decoding with the KV cache gives the outputs of decoding without."""
    some = corpus.sources[::3]
    plain = corpus.torch.translate_ids(some, BEAM.changed(use_cache=False))
    assert same(corpus.beam[::3], plain, 1e-5) > 0.95 * len(some)


def test_beam_one_is_greedy(corpus: Corpus) -> None:
    """Beam search itself with one beam, in one batch."""
    model, sources = corpus.torch.model, corpus.sources[::3]
    task = plan_for(model, SPECIAL, sources, GREEDY, None, None)
    search = beam_search(
        task, np.arange(len(sources)), TorchPredictor(model, SPECIAL, sources, GREEDY)
    )
    results = run_to_end(search)[1]
    found = [results[i] for i in range(len(sources))]
    assert same(corpus.greedy[::3], found, 1e-5) > 0.95 * len(sources)


@pytest.mark.parametrize("kind", ["none", "gnmt", "average"])
def test_scores_are_teacher_forced(corpus: Corpus, kind: Any) -> None:
    """Each sentence alone through the whole model, without cache, search or padding."""
    options = BEAM.changed(length_normalization=kind, length_penalty=0.6)
    sources = corpus.sources[::6]
    for source, result in zip(sources, corpus.torch.translate_ids(sources, options), strict=True):
        for h in result.hypotheses:
            total = teacher_forced(corpus.torch, source, h)
            assert h.log_probability == pytest.approx(total, abs=1e-4)
            assert h.score == pytest.approx(total / penalty(kind, 0.6, h.length), abs=1e-4)


def teacher_forced(engine: TorchEngine, source: list[int], h: Hypothesis) -> float:
    written = [*h.tokens, SPECIAL.end][: h.length]
    read = [SPECIAL.start, *written][: h.length]
    with torch.no_grad():
        logs = (
            engine.model(torch.tensor([source]), torch.tensor([read]))[0].double().log_softmax(-1)
        )
    return sum(logs[position, token].item() for position, token in enumerate(written))


def test_batch_mates_do_not_matter(corpus: Corpus) -> None:
    """Alone, in small batches, in the reverse order: the same outputs; with ct2 too."""
    some = corpus.sources[::6]
    alone = [corpus.torch.translate_ids([source], BEAM)[0] for source in some]
    assert same(corpus.beam[::6], alone, 1e-5) > 0.95 * len(some)
    small = TorchEngine(corpus.torch.model, SPECIAL, batch_tokens=200)
    back = small.translate_ids(corpus.sources[::-1], GREEDY)[::-1]
    assert same(corpus.greedy, back, 1e-5) > 0.95 * len(back)
    ties = [result.near_tie for result in corpus.beam[::6]]
    together = corpus.int8.translate_ids(some, BEAM)
    alone = [corpus.int8.translate_ids([source], BEAM)[0] for source in some]
    for tie, a, b in zip(ties, together, alone, strict=True):
        assert tie or a.best.tokens == b.best.tokens


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_ct2_in_float32_is_torch(corpus: Corpus, options: DecodingOptions) -> None:
    """The best outputs are equal. So are the second best, but for a few in a hundred.

    CTranslate2 lets the pad and the start symbol take a place in the beam, the torch engine does
    not.
    """
    assert len(corpus.sources) >= 500
    mine = corpus.greedy if options is GREEDY else corpus.beam
    theirs = corpus.fp32.translate_ids(corpus.sources, options)
    compared = same(best(mine), best(theirs), 1e-4)
    print(f"{compared} of {len(mine)} compared, {len(mine) - compared} near-ties")
    assert compared > 0.95 * len(mine)
    others = [
        a.near_tie or [h.tokens for h in a.hypotheses] == [h.tokens for h in b.hypotheses]
        for a, b in zip(mine, theirs, strict=True)
    ]
    assert np.mean(others) >= 0.97


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_int8_costs_little(corpus: Corpus, options: DecodingOptions) -> None:
    """In BLEU and chrF against the right translations, and in the model's own scores."""
    references = [[two for _, two in corpus.trained.unseen]]
    sources = corpus.sources[: len(references[0])]
    scores = {}
    for name, engine in (("fp32", corpus.fp32), ("int8", corpus.int8)):
        results = engine.translate_ids(sources, options)
        texts = corpus.bundle.tokenizer.decode_batch([r.best.tokens for r in results])
        bleu, chrf = (m.corpus_score(texts, references).score for m in (BLEU(), CHRF()))
        scores[name] = (bleu, chrf, np.mean([r.best.score for r in results]))
    print(scores)
    assert scores["int8"][0] > scores["fp32"][0] - STATED_BLEU
    assert scores["int8"][1] > scores["fp32"][1] - STATED_CHRF
    assert scores["int8"][2] == pytest.approx(scores["fp32"][2], abs=0.05)


@pytest.fixture(scope="module", params=["ct2", "torch"])
def translator(request: pytest.FixtureRequest, trained: Trained) -> Translator:
    return pellucid.load(trained.bundle.folder, request.param)


def test_a_cut_output_is_told(translator: Translator, trained: Trained) -> None:
    """An output that reaches the maximum length says so."""
    text, whole = trained.unseen[0]
    found = translator.translate([text], max_length=3)[0]
    assert found.ended == found.sentences[0].best.ended == "length"
    assert whole.startswith(found.text.split()[0])
    report = TranslationReport()
    list(translator.translate_lines([text, text], report=report, max_length=3))
    assert report.cut == 2


@pytest.mark.parametrize(
    "text", ["", " ", "\t\n", "😀", "\x00", "\x1b[31m", "…", "\ud800", "中文字", "سلام", "\u200b"]
)
def test_nothing_to_translate_and_unknown_characters(translator: Translator, text: str) -> None:
    """Text without letters stays as it was; anything else is translated."""
    found = translator.translate([text])[0]
    if not any(character.isalpha() for character in text.replace("\x1b[31m", "")):
        assert found.text.encode("utf-8", "replace") == text.encode("utf-8", "replace")
        assert (found.ended, found.sentences) == ("empty", ())
    else:
        assert len(found.sentences) == 1
        assert found.ended in ("eos", "length")


def test_unknown_characters_in_a_sentence(translator: Translator, trained: Trained) -> None:
    one, two = trained.unseen[1]
    found = translator.translate([f"{one} 😀 {one}\x07 \u2028{one}"])[0]
    assert found.text.count("😀") == 1
    assert found.text.count(two) == 3
    assert "\u2028" in found.text


def test_ten_thousand_words(translator: Translator, trained: Trained) -> None:
    """A line without an end is translated in parts, which is reported, and no part is lost.

    A part is no longer than the training sentences, or most of its words would be lost.
    """
    words = [word for one, _ in trained.unseen for word in one.removesuffix(".").split()]
    text = " ".join((words * 5)[:10_000])
    report = TranslationReport()
    made = next(translator.translate_lines([text], report=report, beam_size=1))
    assert (report.split, report.cut) == (1, 0)
    assert len(made.split()) > 0.25 * 10_000  # words without a sentence: how many is the model's
    assert "\n" not in made
    found = translator.translate([text], beam_size=1)[0]
    assert (found.text, found.split) == (made, 1)
    assert " ".join(sentence.source for sentence in found.sentences) == text
    assert all(sentence.best.text.strip() for sentence in found.sentences)


@pytest.mark.parametrize(
    "size", [50_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=["50 kB", "1 MB"]
)
def test_a_line_without_spaces(trained: Trained, size: int) -> None:
    """No hang: the time grows linearly with the line, and every part is translated."""
    translator = pellucid.load(trained.bundle.folder, "ct2")
    report = TranslationReport()
    limits = {"beam_size": 1, "max_length": 20}
    made = next(translator.translate_lines(["bokuo" * (size // 5)], report=report, **limits))
    assert report.split == 1
    assert report.sentences > size / 100
    assert made


def test_the_command_keeps_lines(trained: Trained) -> None:
    """N lines in, N lines out, in order; and without PyTorch, by the bundle's own ct2/."""
    assert trained.bundle.has_ct2
    pairs = trained.unseen
    lines = [one if n % 7 else "" for n, (one, _) in enumerate(pairs)]
    code = (
        "import sys; sys.modules['torch'] = None; from pellucid.cli.main import main\n"
        f"sys.argv = ['pellucid', 'translate', '--model', {str(trained.bundle.folder)!r}]; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found = run.stdout.split("\n")
    assert len(found) == len(lines) + 1
    right = [
        text == (two if line else "")
        for text, line, (_, two) in zip(found[:-1], lines, pairs, strict=True)
    ]
    assert np.mean(right) > 0.95
    assert all(text == "" for text, line in zip(found[:-1], lines, strict=True) if not line)
