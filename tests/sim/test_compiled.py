"""Compiled modules do as their sources do, to the last digit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
MODULES = ["gateway.route.router", "radixgate.prefix", "sim.simulation", "worker.kv.radix"]
TIGHT = "--trace agents:requests=300 --trace rag:requests=300 --load 1.3 --workers 2"
LOOP = "--trace chat:requests=600 --closed-loop 60 --workers 2 --eviction lru"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All packages, with what can be compiled."""
    if which("cc") is None:
        pytest.skip("no C compiler (cc)")
    target = tmp_path_factory.mktemp("compiled")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(target)]
    environment = os.environ | {"HATCH_BUILD_HOOKS_ENABLE": "true"}
    subprocess.run([*install, str(ROOT)], env=environment, check=True)
    return target


def output(*command: str, packages: Path) -> str:
    """What Python prints, with all that is ours from `packages`."""
    environment = os.environ | {"PYTHONPATH": str(packages)}
    whole = [sys.executable, "-P", *command]
    return subprocess.run(whole, env=environment, check=True, capture_output=True, text=True).stdout


def files(packages: Path) -> dict[str, str]:
    imports = f"import json, {', '.join(MODULES)}; "
    named = ", ".join(f"'{name}': {name}.__file__" for name in MODULES)
    return json.loads(output("-c", f"{imports}print(json.dumps({{{named}}}))", packages=packages))


def simulated(options: str, packages: Path) -> list[dict[str, Any]]:
    """All that is measured but the time that it took."""
    command = f"-m cli.main simulate {options} --kv-blocks 1500 --max-running 24 --json"
    policies = ["--policy", "cost,round_robin,dynamo"]
    runs = json.loads(output(*command.split(), *policies, packages=packages))["runs"]
    for run in runs:
        del run["wall_seconds"]
    return runs


def test_compiled_and_not_do_the_same(compiled: Path) -> None:
    built = [Path(file) for file in files(compiled).values()]
    assert all(file.is_relative_to(compiled) for file in built)
    assert all(file.suffix == ".so" for file in built)
    assert all(Path(file).suffix == ".py" for file in files(ROOT).values())
    for options in (TIGHT, LOOP):
        runs = simulated(options, compiled)
        assert runs == simulated(options, ROOT)
        assert any(run["preemptions"] for run in runs), "memory is not tight"
