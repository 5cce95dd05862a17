"""A model on disk: the same numbers back, and nothing damaged or hostile gets in."""

import json
import os
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from pellucid.bundle import ABOUT, CONFIG, MANIFEST, TOKENIZER, WEIGHTS, Bundle, tied_names
from pellucid.bundle.layout import DamagedBundleError
from pellucid.bundle.weights import read_header
from pellucid.errors import InputError, PellucidError
from pellucid.model import ModelConfig, Transformer
from pellucid.storage.files import Disk, file_hash
from pellucid.storage.folder import manifest_hash
from tests import made_up

FILES = [CONFIG, WEIGHTS, TOKENIZER, ABOUT, MANIFEST]


def config(**changes: object) -> ModelConfig:
    shape = {"d_model": 16, "d_ff": 24, "num_heads": 2, "dropout": 0.0}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    return ModelConfig(vocab_size=made_up.tokenizer().vocab_size, **{**shape, **layers, **changes})


def write(folder: Path, *, half: bool = False, seed: int = 0, **changes: object) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(config(**changes)).eval()
    Bundle.write(
        folder,
        model.config,
        model.state_dict(),
        made_up.tokenizer(),
        directions=["en-fr", "fr-en"],
        about={"title": "A small one", "data": {"pairs": 1234}, "notes": ["one", "two"]},
        half=half,
    )
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "model")
    return tmp_path / "model"


def reseal(folder: Path, names: dict[str, str] | None = None) -> None:
    """Make the manifest fit the files again, as one who means harm would."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in list(manifest["files"]):
        path = folder / name
        manifest["files"][name] = {"bytes": path.stat().st_size, "sha256": file_hash(path)}
    for old, new in (names or {}).items():
        manifest["files"][new] = manifest["files"][old]
    manifest["sha256"] = manifest_hash(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def refused(folder: Path) -> str:
    with pytest.raises(PellucidError) as caught:
        Bundle.open(folder).model()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
@pytest.mark.parametrize(
    "more", [{}, {"position_encoding": "learned", "max_length": 9, "norm": "pre"}]
)
def test_the_same_numbers_come_back(tmp_path: Path, tie: str, more: dict[str, object]) -> None:
    model = write(tmp_path / "model", tie_embeddings=tie, **more)
    bundle = Bundle.open(tmp_path / "model")
    back = bundle.model()
    assert bundle.config == model.config
    assert not back.training
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, back.state_dict()[name]), name
    source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8]])
    assert torch.equal(model(source, target), back(source, target))


@pytest.mark.parametrize("tie", ["all", "decoder", "none"])
def test_tied_matrices_are_stored_once(tmp_path: Path, tie: str) -> None:
    model = write(tmp_path / "model", tie_embeddings=tie)
    shared: dict[int, list[str]] = {}
    for name, tensor in model.state_dict().items():
        shared.setdefault(tensor.data_ptr(), []).append(name)
    twice = {second for names in shared.values() for second in names if len(names) > 1}
    named = tied_names(model.config)
    assert twice == {*named, *named.values()}
    numbers = ((tmp_path / "model" / WEIGHTS).stat().st_size) / 4
    assert model.num_parameters() < numbers < model.num_parameters() + 1500  # and the header
    again = Bundle.open(tmp_path / "model").model()
    assert again.num_parameters() == model.num_parameters()


def test_half_takes_half_the_room(tmp_path: Path) -> None:
    model = write(tmp_path / "whole")
    write(tmp_path / "half", half=True)
    sizes = [(tmp_path / name / WEIGHTS).stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.6 * sizes[1]
    back = Bundle.open(tmp_path / "half").model()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.half().float(), back.state_dict()[name])
        assert back.state_dict()[name].dtype == torch.float32


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two")
    write(tmp_path / "other", seed=1)
    one, two, other = (Bundle.open(tmp_path / name) for name in ("one", "two", "other"))
    assert one.fingerprint == two.fingerprint != other.fingerprint
    for name in FILES:
        assert (one.folder / name).read_bytes() == (two.folder / name).read_bytes()
        assert (one.folder / name).stat().st_mode == (one.folder / CONFIG).stat().st_mode


def test_what_it_says_of_itself(folder: Path) -> None:
    bundle = Bundle.open(folder)
    assert bundle.directions == ("en-fr", "fr-en")
    assert bundle.default_direction == "en-fr"
    assert bundle.languages == ("en", "fr")
    assert bundle.tokenizer.sha256 == made_up.tokenizer().sha256
    assert bundle.about.startswith("# A small one\n")
    assert "| pairs | 1,234 |" in bundle.about
    assert "- two" in bundle.about


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_of_each_type_are_read_without_torch(tmp_path: Path, kind: torch.dtype) -> None:
    numbers = torch.randn(50, 7).to(kind)
    weights = {
        "matrix": numbers,
        "b": torch.randn(7).to(kind),
        "a": torch.ones(3),
        "none": torch.zeros(0, 7).to(kind),
    }
    save_file(weights, tmp_path / WEIGHTS)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\nfrom pathlib import Path\n"
        "from pellucid.bundle.weights import read_weights\n"
        "np.savez('read.npz', **read_weights(Path(sys.argv[1])))"
    )
    subprocess.run([sys.executable, "-c", code, WEIGHTS], check=True, cwd=tmp_path)
    read = np.load(tmp_path / "read.npz")
    assert set(read) == set(weights)
    for name, tensor in weights.items():
        assert read[name].dtype == np.float32
        assert np.array_equal(read[name], tensor.float().numpy())


def test_a_header_is_bounded(folder: Path) -> None:
    """A file that is all header is refused before it is read: it may claim any size."""
    for length in (1 << 28, 1 << 62):
        with (folder / WEIGHTS).open("wb") as file:
            file.write(struct.pack("<Q", length))
            file.truncate(1 << 29)  # a hole
        with pytest.raises(DamagedBundleError, match="too large"):
            read_header(folder / WEIGHTS)


def test_drawing_first_weights_leaves_the_seed_alone(folder: Path) -> None:
    bundle = Bundle.open(folder)
    before = torch.random.get_rng_state()
    bundle.model()
    assert torch.equal(before, torch.random.get_rng_state())


def test_opening_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pellucid.bundle import Bundle\n"
        f"bundle = Bundle.open({str(folder)!r})\n"
        "print(bundle.config.d_model, bundle.tokenizer.vocab_size)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["16", str(made_up.tokenizer().vocab_size)]


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    places = random.Random(name).sample(range(len(whole)), min(40, len(whole)))
    for place in {0, len(whole) - 1, *places}:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        (folder / name).write_bytes(damaged)
        message = refused(folder)
        assert name in message
    (folder / name).write_bytes(whole)
    Bundle.open(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_short_or_missing_is_found(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        (folder / name).write_bytes(whole[:length])
        assert name in refused(folder)
    (folder / name).unlink()
    assert name in refused(folder)


class _Harm:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("maker", ["pickle", "torch"])
def test_a_pickle_in_disguise_runs_nothing(folder: Path, tmp_path: Path, maker: str) -> None:
    mark = tmp_path / "it ran"
    if maker == "pickle":
        (folder / WEIGHTS).write_bytes(pickle.dumps(_Harm(mark)))
    else:
        torch.save({"weight": _Harm(mark)}, folder / WEIGHTS)
    reseal(folder)
    assert "safetensors" in refused(folder)
    assert not mark.exists()
    write(folder)
    (folder / TOKENIZER).write_bytes(pickle.dumps(_Harm(mark)))
    reseal(folder)
    refused(folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    ["../secret", "/etc/hostname", "ct2/../../secret", "..", ".", "", "a//b", "a\\b", ".hidden",
     "ct2/", "a\nb", "a" * 300],
)  # fmt: skip
def test_no_path_leads_out(folder: Path, name: str) -> None:
    (folder.parent / "secret").write_text("secret")
    reseal(folder, {CONFIG: name})
    assert MANIFEST in refused(folder)


def test_links_are_refused(folder: Path, tmp_path: Path) -> None:
    for name in FILES:
        moved = tmp_path / name
        (folder / name).rename(moved)
        (folder / name).symlink_to(moved)
        assert "link" in refused(folder)
        (folder / name).unlink()
        moved.rename(folder / name)
    Bundle.open(folder)
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "model.bin").write_bytes((folder / CONFIG).read_bytes())
    (folder / "ct2").symlink_to(aside)
    reseal(folder, {CONFIG: "ct2/model.bin"})
    assert "link" in refused(folder)


def test_a_pipe_does_not_hang_it(folder: Path) -> None:
    (folder / ABOUT).unlink()
    os.mkfifo(folder / ABOUT)
    assert "regular file" in refused(folder)


@settings(max_examples=40)
@given(content=st.binary(max_size=300), header=st.booleans(), deep=st.integers(0, 3))
def test_no_weights_file_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, header: bool, deep: int
) -> None:
    folder = tmp_path_factory.mktemp("bundle") / "model"
    write(folder)
    if header:  # a length that fits, and then anything
        content = struct.pack("<Q", max(0, len(content) - 8)) + content
    if deep:
        content = struct.pack("<Q", 1000 * deep) + b"[" * 1000 * deep
    (folder / WEIGHTS).write_bytes(content)
    reseal(folder)
    assert WEIGHTS in refused(folder)


def weights_of(shapes: dict[str, tuple[str, list[int]]]) -> bytes:
    """A well-formed safetensors file, filled with zeros."""
    sizes = {"F32": 4, "F16": 2, "I64": 8, "F64": 8}
    header, end = {}, 0
    for name, (kind, shape) in shapes.items():
        length = sizes[kind]
        for n in shape:
            length *= n
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + length]}
        end += length
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"target_embedding.tokens.weight": ("F32", [3, 4])},
        {"anything": ("F32", [1])},
        {"anything": ("I64", [2])},
        {"anything": ("F64", [0])},
    ],
)
def test_weights_of_another_model_are_refused(
    folder: Path, shapes: dict[str, tuple[str, list[int]]]
) -> None:
    (folder / WEIGHTS).write_bytes(weights_of(shapes))
    reseal(folder)
    assert WEIGHTS in refused(folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("d_model = 16", "d_model = 1048576"),
        ("d_ff = 24", "d_ff = 99999999999"),
        ("encoder_layers = 1", "encoder_layers = 1000000000"),
        ("vocab_size = 420", "vocab_size = 421"),
        ('default_direction = "en-fr"', 'default_direction = "en-de"'),
        ('    "en-fr",\n    "fr-en",\n', '    "en-fr",\n    "fr-de",\n'),
        ("d_model = 16", "d_modle = 16"),
        ("pad_id = 0", "pad_id = 3"),
        ("format = 1", "format = 1\nformat = 1"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder: Path, old: str, new: str) -> None:
    text = (folder / CONFIG).read_text()
    assert old in text
    (folder / CONFIG).write_text(text.replace(old, new))
    reseal(folder)
    refused(folder)


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model at"):
        Bundle.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no model in"):
        Bundle.open(tmp_path)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear aunt")
    with pytest.raises(InputError, match="not a model"):
        write(tmp_path / "letters")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="in the way"):
        write(tmp_path / "file")
    assert (tmp_path / "letters" / "dear.txt").read_text() == "Dear aunt"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "letters"]


@pytest.mark.parametrize(
    "operation", ["make_folder", "write", "fill", "sync", "rename", "exchange", "remove"]
)
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_failed_write_leaves_the_old_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, operation: str, exchanges: bool
) -> None:
    """The disk fails at each of the operations in turn, until the write comes through."""
    if not exchanges:  # as on a system that cannot swap two names at once
        monkeypatch.setattr("pellucid.storage.files._exchanged", lambda one, other: False)
    old = Bundle.open(folder).fingerprint
    real = getattr(Disk, operation)
    for failing in range(100):
        calls = iter(range(1000))

        def fails(*arguments: object, at: int = failing, calls=calls) -> object:  # type: ignore[no-untyped-def]
            if next(calls) == at:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Disk, operation, fails)
            try:
                write(folder, seed=1)
            except PellucidError as error:
                message = str(error)
            else:
                break
        assert "No space left" in message
        now = Bundle.open(folder).fingerprint
        if operation not in ("sync", "rename"):  # after the swap there is only the folder to sync
            assert now == old
        assert [p.name for p in folder.parent.iterdir()] == ["model"]
    called = operation != "remove" and (operation != "rename" or not exchanges)
    assert (failing > 0) == called
    assert Bundle.open(folder).fingerprint != old


def test_weights_that_are_no_numbers_are_not_written(tmp_path: Path) -> None:
    model = Transformer(config())
    with torch.no_grad():
        model.encoder.layers[0].feed_forward.inner.bias[3] = float("nan")
    with pytest.raises(PellucidError, match=r"inner\.bias"):
        Bundle.write(
            tmp_path / "model", model.config, model.state_dict(), made_up.tokenizer(),
            directions=["en-fr"], about={},
        )  # fmt: skip
    assert not list(tmp_path.iterdir())


def test_wrapped_or_untied_weights_are_not_written(tmp_path: Path) -> None:
    model = Transformer(config())
    tokenizer = made_up.tokenizer()
    wrapped = {f"module.{name}": tensor for name, tensor in model.state_dict().items()}
    with pytest.raises(PellucidError, match="lacks"):
        Bundle.write(
            tmp_path / "m", model.config, wrapped, tokenizer, directions=["en-fr"], about={}
        )
    apart = {**model.state_dict(), "output.weight": model.output.weight + 1}
    with pytest.raises(PellucidError, match="tied but differ"):
        Bundle.write(tmp_path / "m", model.config, apart, tokenizer, directions=["en-fr"], about={})
    assert not list(tmp_path.iterdir())
