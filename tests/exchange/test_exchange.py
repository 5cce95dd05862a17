"""Models of others: what is read, what is refused, and that nothing in them is run."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pellucid.bundle import Bundle, DamagedBundleError
from pellucid.cli.main import main
from pellucid.errors import InputError, PellucidError
from pellucid.exchange import export_model, import_model
from pellucid.exchange.foreign import ForeignFileError
from pellucid.exchange.npz_vocabulary import read_ids
from pellucid.tokenizers.marian import SPECIAL, MarianTokenizer
from tests.bundles import write_bundle
from tests.marian_models import LANGUAGES, write_marian, write_npz


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "opus-mt-fr-en"
    write_marian(folder)
    return folder


@pytest.fixture
def copy(model: Path, tmp_path: Path) -> Path:
    shutil.copytree(model, tmp_path / model.name)
    return tmp_path / model.name


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


class Harm:
    """What an attacker might put into a pickle."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("how", ["torch", "plain", "inside"])
def test_a_malicious_pickle_runs_nothing(copy: Path, tmp_path: Path, how: str) -> None:
    mark = tmp_path / "ran"
    (copy / "model.safetensors").unlink()
    if how == "torch":
        torch.save(Harm(mark), copy / "pytorch_model.bin")
    elif how == "inside":
        torch.save(
            {"model.shared.weight": torch.ones(2), "x": Harm(mark)}, copy / "pytorch_model.bin"
        )
    else:
        (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Harm(mark)))
    with pytest.raises(ForeignFileError, match=r"pytorch_model\.bin holds more than weights"):
        import_model(copy, tmp_path / "bundle")
    assert not mark.exists()
    assert not (tmp_path / "bundle").exists()
    pickle.loads(pickle.dumps(Harm(mark)))  # it would have
    assert mark.exists()


def test_a_malicious_npz_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    write_npz(tmp_path / "fr-en")
    harm = np.empty(1, dtype=object)
    harm[0] = Harm(mark)
    np.savez(tmp_path / "fr-en" / "model.npz", Wemb=harm)
    with pytest.raises(ForeignFileError, match=r"model\.npz holds Python objects"):
        import_model(tmp_path / "fr-en", tmp_path / "bundle")
    assert not mark.exists()


def test_only_weights_are_taken_from_a_pickle(copy: Path, tmp_path: Path) -> None:
    weights: dict[str, Any] = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    for extra, why in (
        ({"step": 3}, "not a weight but int"),
        ({"n": torch.ones(2).long()}, "plain"),
    ):
        torch.save({**weights, **extra}, copy / "pytorch_model.bin")
        with pytest.raises(ForeignFileError, match=why):
            import_model(copy, tmp_path / "bundle")
    torch.save([1, 2], copy / "pytorch_model.bin")
    with pytest.raises(ForeignFileError, match="holds list and no weights"):
        import_model(copy, tmp_path / "bundle")


@pytest.mark.parametrize("legacy", [False, True])
def test_half_precision_and_the_format_of_2020(tmp_path: Path, legacy: bool) -> None:
    """As older public models are stored: float16, positions among the weights, no zip archive."""
    peer, _ = write_marian(tmp_path / "opus-mt-fr-en", safe=False)
    weights = peer.half().state_dict()
    assert "model.encoder.embed_positions.weight" in weights
    path = tmp_path / "opus-mt-fr-en" / "pytorch_model.bin"
    torch.save(weights, path, _use_new_zipfile_serialization=not legacy)
    bundle = import_model(tmp_path / "opus-mt-fr-en", tmp_path / "b")
    theirs = weights["model.decoder.layers.1.fc1.weight"].float().numpy()
    assert (bundle.weights()["decoder.layers.1.feed_forward.inner.weight"] == theirs).all()


@pytest.mark.parametrize(
    "name", ["model.safetensors", "vocab.json", "source.spm", "config.json", "pytorch_model.bin"]
)
def test_a_damaged_file_is_named(copy: Path, tmp_path: Path, name: str) -> None:
    if name == "pytorch_model.bin":
        torch.save(load_file(copy / "model.safetensors"), copy / name)
        (copy / "model.safetensors").unlink()
    data = (copy / name).read_bytes()
    for damaged in (data[: len(data) // 2], b"", b"\xff" * 100):
        (copy / name).write_bytes(damaged)
        with pytest.raises(PellucidError, match=name) as caught:
            import_model(copy, tmp_path / "bundle")
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "bundle").exists()
    (copy / name).unlink()
    with pytest.raises(InputError):
        import_model(copy, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"model_type": "m2m_100"}, "model_type is 'm2m_100'"),
        ({"normalize_before": True}, "normalize_before is on"),
        ({"decoder_ffn_dim": 96}, "48 in the encoder and 96 in the decoder"),
        ({"activation_function": "tanh"}, "activation 'tanh'"),
        ({"tie_word_embeddings": False}, "shared but not tied"),
        ({"d_model": 64}, "shape"),
        ({"d_model": 33}, "cannot be used"),
        ({"d_model": "big"}, "d_model"),
        ({"encoder_layers": 3}, "lacks 'model.encoder.layers.2"),
        ({"encoder_layers": 1}, "no part of Marian"),
        ({"pad_token_id": None}, "no single id for pad"),
        ({"eos_token_id": 10**6}, "outside the vocabulary"),
        ({"vocab_size": 500, "pad_token_id": 3}, "the model 500"),
    ],
)
def test_another_config_is_refused(
    copy: Path, tmp_path: Path, values: dict[str, Any], why: str
) -> None:
    changed(copy / "config.json", **values)
    with pytest.raises(PellucidError, match=why):
        import_model(copy, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_weights_must_all_be_understood(copy: Path, tmp_path: Path) -> None:
    path = copy / "model.safetensors"
    weights = load_file(path)
    shared = weights["model.shared.weight"]
    for extra, why in (
        ({"model.encoder.layer_norm.weight": torch.ones(32)}, "no part of Marian"),
        ({"lm_head.weight": shared + 1}, "tied but differ"),
        ({"model.encoder.embed_positions.weight": torch.ones(128, 32)}, "not sinusoidal"),
        ({"model.encoder.layers.0.self_attn.q_proj.weight": torch.ones(8, 32)}, "differ in shape"),
    ):
        save_file({**weights, **extra}, path)
        with pytest.raises(ForeignFileError, match=why):
            import_model(copy, tmp_path / "bundle")
    save_file({**weights, "lm_head.weight": shared.clone()}, path)  # the same again is fine
    assert import_model(copy, tmp_path / "bundle").directions == ("fr-en",)


def test_a_vocabulary_must_have_every_id(copy: Path, tmp_path: Path) -> None:
    ids = json.loads((copy / "vocab.json").read_text())
    for broken in ({**ids, "again": 5}, {**ids, "far": 10**9}, {**ids, "half": 1.5}, [1, 2], {}):
        (copy / "vocab.json").write_text(json.dumps(broken))
        with pytest.raises(PellucidError, match=r"vocab\.json"):
            import_model(copy, tmp_path / "bundle")


def test_directions(model: Path, tmp_path: Path) -> None:
    plain = tmp_path / "somewhere"
    shutil.copytree(model, plain)
    assert import_model(plain, tmp_path / "a").directions == ("fr-en",)  # tokenizer_config.json
    (plain / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match="--direction"):
        import_model(plain, tmp_path / "b")
    given = import_model(plain, tmp_path / "b", directions=["it-en", "ca-en"])
    assert given.directions == ("it-en", "ca-en")
    named = plain.rename(tmp_path / "opus-mt-tc-big-gmw-pt_BR")
    assert import_model(named, tmp_path / "c").directions == ("gmw-pt_BR",)


def test_directions_of_tags(tmp_path: Path) -> None:
    write_marian(tmp_path / "opus-mt-en-mul", tags=LANGUAGES)
    (tmp_path / "opus-mt-en-mul" / "tokenizer_config.json").unlink()
    bundle = import_model(tmp_path / "opus-mt-en-mul", tmp_path / "all")
    assert bundle.directions == ("en-fra", "en-deu", "en-pt_BR")
    one = import_model(tmp_path / "opus-mt-en-mul", tmp_path / "one", directions=["en-deu"])
    assert one.directions == ("en-deu",)
    with pytest.raises(InputError, match="no tag for language 'ita'"):
        import_model(tmp_path / "opus-mt-en-mul", tmp_path / "no", directions=["en-ita"])


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        import_model(tmp_path / "nowhere", tmp_path / "b")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no model that can be imported"):
        import_model(tmp_path / "empty", tmp_path / "b")
    own = write_bundle(tmp_path / "own", ct2=False)
    with pytest.raises(InputError, match="a model of Pellucid already"):
        import_model(own.folder, tmp_path / "b")


def test_the_card_says_where_it_is_from(copy: Path, tmp_path: Path) -> None:
    (copy / "README.md").write_text(
        "---\ntags: x\nlicense: cc-by-4.0\n---\n# A model\nlicense: no\n"
    )
    bundle = import_model(copy, tmp_path / "b", name="Made-Up/opus-mt-fr-en", revision="abc")
    for said in ("Made-Up/opus-mt-fr-en", "abc", "cc-by-4.0"):
        assert said in bundle.about


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"transformer-decoder-autoreg": "rnn"}, "SSRU"),
        ({"transformer-decoder-autoreg": "average-attention"}, "'average-attention' in place"),
        ({"type": "s2s"}, "its type is 's2s'"),
        ({"transformer-ffn-activation": "gelu"}, "activation is 'gelu'"),
        ({"transformer-preprocess": "n", "transformer-postprocess": "dan"}, "norms are at"),
        ({"transformer-tied-layers": [1, 1]}, "transformer-tied-layers is on"),
        ({"right-left": True}, "right-left is on"),
        ({"transformer-train-position-embeddings": True}, "position-embeddings is on"),
        ({"transformer-decoder-dim-ffn": 999}, "differs from the encoder's"),
        ({"enc-depth": 1}, "'encoder_l2_|no part of a plain Transformer"),
        ({"dec-depth": "x"}, "cannot be used"),
    ],
)
def test_variants_of_marian_are_refused(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    folder = tmp_path / "fr-en"
    write_npz(folder)
    arrays = dict(np.load(folder / "model.npz"))
    settings = json.loads(arrays["special:model.yml"].tobytes()[:-1])
    text = json.dumps({**settings, **changes}).encode() + b"\0"
    arrays["special:model.yml"] = np.frombuffer(text, np.int8)
    np.savez(folder / "model.npz", **arrays)
    with pytest.raises(PellucidError, match=why):
        import_model(folder, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_other_npz_files(tmp_path: Path) -> None:
    folder = tmp_path / "fr-en"
    write_npz(folder)
    arrays = dict(np.load(folder / "model.npz"))
    for change, why in (
        ({"decoder_l1_rnn_W": np.ones((2, 2), np.float32)}, "'decoder_l1_rnn_W'"),
        ({"Wemb": np.ones((7, 32), np.float32)}, "do not belong together"),
        ({"Wemb": np.ones((7, 32), np.int8)}, "quantised"),
        ({"special:model.yml": np.frombuffer(b"- a\0", np.int8)}, "not a table"),
    ):
        np.savez(folder / "model.npz", **{**arrays, **change})
        with pytest.raises(PellucidError, match=why):
            import_model(folder, tmp_path / "bundle")
    (folder / "model.npz").write_bytes(b"PK\x03\x04 no")
    with pytest.raises(ForeignFileError, match="cannot be read"):
        import_model(folder, tmp_path / "bundle")
    shutil.copy(folder / "model.npz", folder / "other.npz")
    (folder / "decoder.yml").unlink()
    with pytest.raises(InputError, match=r"2 \.npz files"):
        import_model(folder, tmp_path / "bundle")


def test_a_vocabulary_in_yaml(tmp_path: Path) -> None:
    """Every key is the text it is, whatever else YAML could take it for."""
    words = ["</s>", "<unk>", "yes", "null", "~", "1_000", "0x1F", "▁a", ":", "#", "- b", '"', "'"]
    lines = [f"{json.dumps(word, ensure_ascii=False)}: {i}\n" for i, word in enumerate(words)]
    lines[2:4] = ["yes: 2\n", "null: 3\n"]
    (tmp_path / "v.yml").write_text("".join(lines), encoding="utf-8")
    assert list(read_ids(tmp_path / "v.yml")) == words
    (tmp_path / "v.yml").write_text("[broken")
    with pytest.raises(ForeignFileError, match="not a vocabulary in YAML"):
        read_ids(tmp_path / "v.yml")


@pytest.fixture(scope="module")
def bundle(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return import_model(model, tmp_path_factory.mktemp("imported") / "bundle")


def test_special_ids_are_part_of_the_bundle(bundle: Bundle, tmp_path: Path) -> None:
    words = bundle.tokenizer
    assert isinstance(words, MarianTokenizer)
    last = words.vocab_size - 1
    assert (words.pad_id, words.bos_id, words.eos_id, words.unk_id) == (last, last, 0, 1)
    folder = tmp_path / "b"
    shutil.copytree(bundle.folder, folder)
    (folder / SPECIAL).write_text(json.dumps({"pad": 1, "start": 1, "end": 0, "unknown": 1}))
    with pytest.raises(DamagedBundleError, match=SPECIAL):
        Bundle.open(folder)


def test_a_file_that_no_manifest_lists_changes_nothing(bundle: Bundle, tmp_path: Path) -> None:
    own = write_bundle(tmp_path / "own", ct2=False)
    for name, data in bundle.tokenizer.files().items():
        (own.folder / name).write_bytes(data)
    assert not isinstance(Bundle.open(own.folder).tokenizer, MarianTokenizer)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"norm": "pre"}, "norm is 'pre', and Marian's is 'post'"),
        ({"norm_type": "rms"}, "norm_type"),
        ({"position_encoding": "rotary"}, "position_encoding is 'rotary'"),
        ({"activation": "swiglu"}, "activation is 'swiglu'"),
        ({"num_kv_heads": 2}, "num_kv_heads"),
        ({"qk_norm": "self"}, "qk_norm"),
    ],
)
def test_what_transformers_cannot_express(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    own = write_bundle(tmp_path / "own", ct2=False, **changes)
    with pytest.raises(InputError, match=why):
        export_model(own, tmp_path / "out", "huggingface")
    assert not (tmp_path / "out").exists()
    export_model(own, tmp_path / "ct2", "ctranslate2")


def test_what_ctranslate2_cannot_express(tmp_path: Path) -> None:
    own = write_bundle(tmp_path / "own", ct2=False, activation="relu2")
    with pytest.raises(InputError, match="no activation = 'relu2'"):
        export_model(own, tmp_path / "out", "ctranslate2")
    assert export_model(own, tmp_path / "out", "huggingface") == tmp_path / "out"


def test_a_smaller_bundle(bundle: Bundle, tmp_path: Path) -> None:
    text = "# A lamp\n\nWhat it is for.\n"
    small = Bundle.open(export_model(bundle, tmp_path / "small", "pellucid", about=text))
    assert small.about == text
    assert small.settings == bundle.settings
    assert small.has_ct2
    assert small.tokenizer.files() == bundle.tokenizer.files()
    whole = bundle.weights()
    for name, array in small.weights().items():
        assert (array == whole[name].astype("float16").astype("float32")).all(), name
    before, after = (path / "weights.safetensors" for path in (bundle.folder, small.folder))
    assert after.stat().st_size < 0.6 * before.stat().st_size
    again = export_model(bundle, tmp_path / "again", "pellucid")
    assert Bundle.open(again).about == bundle.about


def test_an_export_replaces_nothing(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    for form, quantization, why in (
        ("onnx", "int8", "unknown format 'onnx'"),
        ("ctranslate2", "int3", "unknown quantization 'int3'"),
        ("ctranslate2", "int8", "exists already"),
    ):
        with pytest.raises(InputError, match=why):
            export_model(bundle, tmp_path, form, quantization)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_the_commands(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("PELLUCID_MODELS", str(tmp_path / "models"))

    def pellucid(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pellucid", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return code, *(part.decode() for part in capfdbinary.readouterr())

    assert pellucid("import", model, "-o", tmp_path / "b")[:2] == (0, f"{tmp_path / 'b'}\tfr-en\n")
    assert pellucid("import", model)[1] == f"{tmp_path / 'models' / model.name}\tfr-en\n"
    assert model.name in pellucid("models")[1]
    assert pellucid("translate", "--model", model.name, "--from", "fr", "le phare")[0] == 0
    unready = pellucid("translate", "--model", model, "le phare")
    assert unready[0] == 2
    assert f"pellucid import {model}" in unready[2]
    out = pellucid("export", tmp_path / "b", "-o", tmp_path / "hf", "--format", "huggingface")
    assert out[1] == f"{tmp_path / 'hf'}\n"
    assert (tmp_path / "hf" / "model.safetensors").is_file()
    for wrong, why in (
        (("import", tmp_path / "no"), "no folder"),
        (("import", model, "-o", model), "holds something that is not a model"),
        (("export", tmp_path / "b", "-o", tmp_path / "hf"), "exists already"),
    ):
        code, _, said = pellucid(*wrong)
        assert code == 2
        assert why in said
        assert said.count("\n") == 1
