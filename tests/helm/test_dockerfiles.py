"""The Dockerfiles are held to hadolint, and to what the chart expects of the images."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))
HADOLINT = Path(sys.executable).with_name("hadolint")


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    """Its verdict, in which even hints count."""
    return subprocess.run(
        [HADOLINT, "--failure-threshold=style", path], capture_output=True, text=True, check=False
    )


def test_there_is_one_for_each_image() -> None:
    assert [path.stem for path in DOCKERFILES] == ["gateway", "worker"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_hadolint_has_nothing_to_say(path: Path) -> None:
    verdict = hadolint(path)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_hadolint_says_something_of_a_bad_one(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM debian:latest\nRUN cd /tmp && apt-get install -y curl\n")
    assert hadolint(bad).returncode != 0


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.stem)
def test_images_are_what_the_chart_expects(path: Path) -> None:
    lines = path.read_text().splitlines()
    stages = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert set(stages[1:]) == {"base"}
    assert re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-\S+@sha256:[0-9a-f]{64}", stages[0])
    assert "USER 10001:10001" in lines, "restricted pods need a number, and not 0"
    assert lines[-1] == 'ENTRYPOINT ["radixgate"]'
    ports = {"gateway": "EXPOSE 50051 9090", "worker": "EXPOSE 50052 9091"}
    assert ports[path.stem] in lines


def test_the_gateway_has_no_torch() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (wanted,) = re.findall(r"'\.\[(\w+)\]'", DOCKERFILES[0].read_text())
    seen, names = {wanted}, {wanted}
    while names:
        needs = " ".join(extras[names.pop()])
        assert "torch" not in needs
        more = {
            name
            for group in re.findall(r"radixgate\[([\w,]+)\]", needs)
            for name in group.split(",")
        }
        names |= more - seen
        seen |= more
    assert "gateway" in seen


def test_the_context_has_what_pip_needs_and_no_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {package.partition("/")[0] for package in packages} | {
        *("pyproject.toml", "constraints.txt", project["project"]["readme"]),
        *project["project"]["license-files"],
    }
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == needed
