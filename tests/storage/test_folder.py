"""The proof of what every save relies on: killed anywhere, the old whole is there or the new."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pellucid.errors import PellucidError
from pellucid.storage import files
from pellucid.storage.files import Disk, open_atomic, write_atomic
from pellucid.storage.folder import MANIFEST, FolderDraft, FolderFormat, atomic_folder
from tests.storage.failing_disk import FailingDisk

OLD, NEW = {"a": "old", "sub/b": "old too"}, {"a": "new" * 1000, "sub/c": "new too", "lib": "x"}
KILLED = 9
Save = Callable[[Path, Disk], None]


class DamagedError(PellucidError):
    pass


FORMAT = FolderFormat(1, DamagedError, "make it again")


def save_folder(folder: Path, disk: Disk, texts: dict[str, str] = NEW) -> None:
    """Write a folder in each of the ways that a draft offers."""
    with atomic_folder(folder, disk) as draft:
        for name, text in texts.items():
            (draft.path / name).parent.mkdir(exist_ok=True)
            if name == "lib":
                draft.fill(name, lambda path, text=text: path.write_text(text))  # type: ignore[misc]
            elif name == "sub/c":
                with draft.open(name) as stream:
                    stream.write(text.encode())
            elif name == "sub/b":
                (draft.path / name).write_text(text)
                draft.add(name)
            else:
                draft.write(name, text)
        draft.write_manifest({"format": 1})


def save_file(path: Path, disk: Disk) -> None:
    write_atomic(path, "new" * 1000, disk=disk)


def content(path: Path) -> dict[str, str] | str | None:
    """What a reader gets: a file's text, or a folder's whose manifest fits; None if nothing."""
    if not path.exists():
        return None
    if path.is_file():
        return path.read_text()
    manifest = FORMAT.read_manifest(path)
    for name, entry in manifest["files"].items():
        FORMAT.check_file(path / name, entry)
    found = {p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()}
    assert found == {*manifest["files"], MANIFEST}
    return {name: (path / name).read_text() for name in manifest["files"]}


def operations(save: Save, path: Path) -> list[str]:
    disk = FailingDisk(0, lambda: None)
    save(path, disk)
    return disk.log


def places(log: list[str]) -> Iterator[tuple[int, bool]]:
    """Each operation, counted from 1, and again after half of it where it has halves."""
    for at, name in enumerate(log, 1):
        yield at, False
        if name in ("write", "remove"):
            yield at, True


def killed(save: Save, path: Path, at: int, half: bool) -> None:
    """Save in a process that dies, as by SIGKILL, at one operation: nothing is tidied up."""
    child = os.fork()
    if not child:
        try:
            save(path, FailingDisk(at, lambda: os._exit(KILLED), half))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == KILLED


@pytest.fixture(params=["nothing", "old"])
def before(request: pytest.FixtureRequest) -> bool:
    """Whether something is replaced."""
    return bool(request.param == "old")


def prepared(folder: Path, save: Save, before: bool) -> Path:
    """The path to save to, in a folder of its own."""
    folder.mkdir()
    path = folder / "saved"
    if before and save is save_file:
        path.write_text("old")
    elif before:
        save_folder(path, Disk(), OLD)
    return path


@pytest.mark.parametrize("save", [save_folder, save_file])
def test_killed_at_each_operation_it_is_the_old_or_the_new(
    save: Save, before: bool, tmp_path: Path
) -> None:
    log = operations(save, prepared(tmp_path / "counted", save, before))
    new = content(tmp_path / "counted" / "saved")
    outcomes = []
    for number, (at, half) in enumerate(places(log)):
        path = prepared(tmp_path / str(number), save, before)
        old = content(path)
        killed(save, path, at, half)
        assert content(path) in (old, new), (at, log[at - 1], half)
        outcomes.append(content(path) == new)
        save(path, Disk())  # what a kill leaves behind is in nobody's way
        assert content(path) == new
    assert outcomes == sorted(outcomes)  # it changes once, from the old to the new
    assert set(outcomes) == {False, True}


@pytest.mark.parametrize("save", [save_folder, save_file])
def test_an_error_at_each_operation_leaves_nothing_behind(
    save: Save, before: bool, tmp_path: Path
) -> None:
    log = operations(save, prepared(tmp_path / "counted", save, before))
    new = content(tmp_path / "counted" / "saved")

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for number, (at, half) in enumerate(places(log)):
        path = prepared(tmp_path / str(number), save, before)
        old = content(path)
        if log[at - 1] == "remove":  # of the old one, when the new one is there
            save(path, FailingDisk(at, full, half))
            assert content(path) == new
            continue
        with pytest.raises(OSError, match="No space left"):
            save(path, FailingDisk(at, full, half))
        last_sync = at > max(n for n, name in enumerate(log, 1) if name in ("rename", "exchange"))
        assert content(path) == (new if last_sync else old)
        left = [one.name for one in path.parent.iterdir()]
        assert left == (["saved"] if before or last_sync else [])


def test_what_a_save_does(tmp_path: Path) -> None:
    """Everything is on the disk before it gets its name, and the name before the old one goes."""
    path = tmp_path / "saved"
    three = ["write", "sync"] * 3
    parts = ["make_folder", *three, "write", "sync", "sync", "sync"]  # manifest, two folders
    assert operations(save_folder, path) == [*parts, "rename", "sync"]
    assert operations(save_folder, path) == [*parts, "exchange", "sync", "remove"]
    assert operations(save_file, tmp_path / "file") == ["write", "sync", "rename", "sync"]


def test_where_names_cannot_be_swapped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two renames: the old folder is whole, under the draft's name."""
    monkeypatch.setattr(files, "_exchanged", lambda one, other: False)
    log = operations(save_folder, prepared(tmp_path / "counted", save_folder, True))
    start = log.index("exchange") + 1
    assert log[start : start + 3] == ["rename", "rename", "sync"]
    for at in range(start, start + 4):
        path = prepared(tmp_path / str(at), save_folder, True)
        killed(save_folder, path, at, False)
        if at == start + 2:  # the second rename
            assert content(path) is None
            (aside,) = path.parent.glob(".saved.writing-*.old")
            assert content(aside) == OLD
        else:
            assert content(path) == (NEW if at > start + 2 else OLD)


def test_moved_into_a_folder_of_others_a_mixture_is_found(tmp_path: Path) -> None:
    def save(folder: Path, disk: Disk, text: str = "new") -> None:
        draft = FolderDraft(folder, folder / ".writing", disk)
        draft.discard()
        draft.begin()
        for name in ("a", "b"):
            draft.write(name, f"{text} {name}")
        draft.write_manifest({"format": 1})
        draft.publish_into()
        draft.path.rmdir()

    def reading(folder: Path) -> str | None:
        try:
            manifest = FORMAT.read_manifest(folder)
            for name, entry in manifest["files"].items():
                FORMAT.check_file(folder / name, entry)
        except DamagedError:
            return None
        return (folder / "a").read_text()[:3]

    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    log = operations(lambda path, disk: save(path, disk, "old"), folder)
    outcomes = []
    for at, half in places(log):
        save(folder, Disk(), "old")
        killed(save, folder, at, half)
        outcomes.append(reading(folder))
        assert (folder / "mine.txt").read_text() == "mine"
    kinds = list(dict.fromkeys(outcomes))
    assert kinds == ["old", None, "new"]


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "manifest", "version"])
def test_a_reader_finds_damage_and_says_what_to_do(damage: str, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    save_folder(folder, Disk())
    path = folder / (MANIFEST if damage == "manifest" else "a")
    if damage == "gone":
        path.unlink()
    elif damage == "version":
        with atomic_folder(folder) as draft:
            draft.write_manifest({"format": 2})
    elif damage == "cut":
        path.write_text("ne")
    else:
        path.write_text(path.read_text().replace("e", "f"))
    with pytest.raises(DamagedError, match=r"saved.*: make it again$"):
        content(folder)


def test_a_file_keeps_its_permissions_and_its_link(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_atomic(link, "new")
    assert (path.read_text(), link.is_symlink()) == ("new", True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    write_atomic(tmp_path / "secret", "x", mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    write_atomic(tmp_path / ("ü" * 120), "a long name")


def test_what_is_no_plain_file_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with open_atomic(pipe) as stream:
        stream.write(b"text")
    assert os.read(reader, 9) == b"text"
    os.close(reader)
