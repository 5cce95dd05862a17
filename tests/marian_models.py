"""Small random models in the public layouts of Marian: Hugging Face's folder, and its own .npz."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from tests.made_up import pairs

LANGUAGES = ("fra", "deu", "pt_BR")


@cache
def spm(side: int, kind: str = "unigram", rule: str = "nmt_nfkc", size: int = 110) -> bytes:
    """A SentencePiece model as OPUS-MT's are: spaces and characters normalised, no bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([pair[side] for pair in pairs(300, seed=5)]),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        normalization_rule_name=rule,
        unk_id=1,
        eos_id=0,
        bos_id=-1,
        pad_id=-1,
        minloglevel=3,
        num_threads=1,
    )
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(token) for token in range(processor.get_piece_size())]


def table(*lists: list[str], tags: tuple[str, ...] = ()) -> dict[str, int]:
    """Ids as Marian gives them: end 0, unknown 1, tags, pieces of all sides, and pad last."""
    words = ["</s>", "<unk>", *(f">>{tag}<<" for tag in tags)]
    words += sorted({piece for pieces in lists for piece in pieces} - set(words), key=hash_free)
    return {word: number for number, word in enumerate([*words, "<pad>"])}


def hash_free(piece: str) -> tuple[int, str]:
    return len(piece), piece


def write_tokenizer(
    folder: Path, *, tags: tuple[str, ...] = (), separate: bool = False, rule: str = "nmt_nfkc"
) -> MarianTokenizer:
    """source.spm, target.spm, vocab.json and the settings, by transformers' own tokenizer."""
    raw = folder.with_name(f"{folder.name}.raw")
    raw.mkdir(parents=True)
    models = spm(1, rule=rule), spm(0, "bpe", rule=rule)
    (raw / "source.spm").write_bytes(models[0])
    (raw / "target.spm").write_bytes(models[1])
    lists = [pieces_of(model) for model in models]
    if separate:
        sizes = [len(table(lists[0], tags=tags)), len(table(lists[1]))]
        for one, size in zip(lists, sizes, strict=True):  # the pad symbol has one id on both sides
            one += [f"no{number}" for number in range(max(sizes) - size)]
        (raw / "target_vocab.json").write_text(json.dumps(table(lists[1])))
        (raw / "vocab.json").write_text(json.dumps(table(lists[0], tags=tags)))
    else:
        (raw / "vocab.json").write_text(json.dumps(table(*lists, tags=tags)))
    tokenizer = MarianTokenizer(
        str(raw / "source.spm"),
        str(raw / "target.spm"),
        str(raw / "vocab.json"),
        target_vocab_file=str(raw / "target_vocab.json") if separate else None,
        source_lang="fr",
        target_lang="en",
        separate_vocabs=separate,
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_marian(
    folder: Path,
    *,
    seed: int = 0,
    tags: tuple[str, ...] = (),
    separate: bool = False,
    safe: bool = True,
    rule: str = "nmt_nfkc",
    end_bias: float = 2.5,
    **changes: Any,
) -> tuple[MarianMTModel, MarianTokenizer]:
    """A folder as `Helsinki-NLP/opus-mt-fr-en` is one, but small and random."""
    tokenizer = write_tokenizer(folder, tags=tags, separate=separate, rule=rule)
    torch.manual_seed(seed)
    vocab = tokenizer.vocab_size
    settings = {
        "vocab_size": vocab,
        "decoder_vocab_size": vocab,
        "share_encoder_decoder_embeddings": not separate,
        "d_model": 32,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "activation_function": "swish",
        "scale_embedding": True,
        "max_position_embeddings": 128,
        "pad_token_id": vocab - 1,
        "decoder_start_token_id": vocab - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "init_std": 0.2,
    }
    model = MarianMTModel(MarianConfig(**{**settings, **changes})).eval()
    with torch.no_grad():
        model.final_logits_bias.normal_(std=0.3)
        model.final_logits_bias[0, 0] = end_bias
        model.final_logits_bias[0, -1] = -40.0  # the pad symbol, which no model should write
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
            elif "layer_norm" in name:
                parameter.uniform_(0.5, 1.5)
    model.generation_config.max_length = 64
    if safe:
        model.save_pretrained(folder)
    else:
        model.config.save_pretrained(folder)
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return model, tokenizer


NPZ: dict[str, Any] = {
    "type": "transformer",
    "version": "v1.9.0 made up",
    "dim-emb": 32,
    "enc-depth": 2,
    "dec-depth": 2,
    "transformer-heads": 4,
    "transformer-dim-ffn": 48,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "swish",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-guided-alignment-layer": "last",
    "transformer-tied-layers": [],
    "right-left": False,
}


def write_npz(folder: Path, layout: str = "post", **changes: Any) -> dict[str, Any]:
    """A folder of OPUS-MT before it was converted: .npz, vocabulary, decoder.yml; its decoder.yml.

    layout: post, pre, "two vocabularies" or "own output" (no tying with the embedding).
    """
    folder.mkdir(parents=True)
    models = spm(1), spm(0, "bpe")
    (folder / "source.spm").write_bytes(models[0])
    (folder / "target.spm").write_bytes(models[1])
    lists = [pieces_of(model) for model in models]
    tables = [table(*lists)]
    if layout == "two vocabularies":
        tables = [table(lists[0]), table([*lists[1], "one", "more"])]
    names = []
    for ids in tables:
        names.append(f"made.vocab{len(names)}.yml")
        del ids["<pad>"]
        lines = [
            f"{json.dumps(piece, ensure_ascii=False)}: {token}\n" for piece, token in ids.items()
        ]
        (folder / names[-1]).write_text("".join(lines), encoding="utf-8")
    settings = {**NPZ, **changes}
    if layout == "pre":
        settings |= {"transformer-preprocess": "n", "transformer-postprocess": "da"}
        settings |= {"transformer-postprocess-top": "n", "transformer-postprocess-emb": "nd"}
    arrays = _npz_arrays(settings, [len(ids) for ids in tables], layout)
    text = json.dumps(settings).encode() + b"\0"
    np.savez(folder / "model.npz", **{"special:model.yml": np.frombuffer(text, np.int8)}, **arrays)
    listed = {"models": ["model.npz"], "vocabs": [names[0], names[-1]], "beam-size": 6}
    (folder / "decoder.yml").write_text(json.dumps(listed))
    return listed


def _npz_arrays(settings: dict[str, Any], sizes: list[int], layout: str) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    D, F = settings["dim-emb"], settings["transformer-dim-ffn"]
    pre = "_pre" if settings["transformer-preprocess"] == "n" else ""

    def some(*shape: int, spread: float = 0.2) -> np.ndarray:
        return draw.normal(0, spread, shape).astype(np.float32)

    arrays: dict[str, np.ndarray] = {}

    def add_norm(name: str, end: str) -> None:
        arrays[f"{name}_ln_scale{end}"] = 1 + some(1, D)
        arrays[f"{name}_ln_bias{end}"] = some(1, D)

    for side, depth in (("encoder", settings["enc-depth"]), ("decoder", settings["dec-depth"])):
        for layer in range(1, depth + 1):
            scope = f"{side}_l{layer}"
            for attention in ("self", "context")[: 1 if side == "encoder" else 2]:
                for part in "qkvo":
                    arrays[f"{scope}_{attention}_W{part}"] = some(D, D)
                    arrays[f"{scope}_{attention}_b{part}"] = some(1, D)
                add_norm(f"{scope}_{attention}_Wo", pre)
            arrays[f"{scope}_ffn_W1"], arrays[f"{scope}_ffn_b1"] = some(D, F), some(1, F)
            arrays[f"{scope}_ffn_W2"], arrays[f"{scope}_ffn_b2"] = some(F, D), some(1, D)
            add_norm(f"{scope}_ffn_ffn", pre)
        if pre:
            add_norm(f"{side}_top", "")
            add_norm(f"{side}_emb", "_pre")
    if len(sizes) == 2:
        arrays["encoder_Wemb"], arrays["decoder_Wemb"] = some(sizes[0], D), some(sizes[1], D)
    else:
        arrays["Wemb"] = some(sizes[0], D)
    if layout == "own output":
        arrays["decoder_ff_logit_out_W"] = some(D, sizes[-1])
    arrays["decoder_ff_logit_out_b"] = some(1, sizes[-1])
    arrays["decoder_ff_logit_out_b"][0, 0] = 2.5
    return arrays
