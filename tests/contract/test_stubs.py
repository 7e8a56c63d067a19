"""The committed stubs are what `protoc` makes of the committed protos."""

import subprocess
import sys
from pathlib import Path

import pytest

PROTO = Path(__file__).parents[2] / "proto"


@pytest.mark.slow
def test_the_stubs_are_fresh(tmp_path: Path) -> None:
    protos = sorted(
        path.relative_to(PROTO).as_posix() for path in PROTO.glob("radixgate/v1/*.proto")
    )
    assert protos
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *protos]
        + [f"--{out}={tmp_path}" for out in ("python_out", "grpc_python_out")],
        cwd=PROTO,
        check=True,
    )
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2*.py"))
    assert len(made) == 2 * len(protos)
    stale = [
        str(path) for path in made if (tmp_path / path).read_bytes() != (PROTO / path).read_bytes()
    ]
    assert not stale, f"run 'make proto': {stale}"
