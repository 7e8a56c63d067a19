"""A build hook: the wheel with the modules that are named in pyproject.toml compiled by mypyc.

    HATCH_BUILD_HOOKS_ENABLE=true pip install .

Wants a C compiler. Each compiled module lies beside its source, which Python then takes no more.
`pip install -e` has the sources run, whatever is asked for.
"""

import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILE = """
import sys
from mypyc.build import mypycify
from setuptools import setup

options = ["--ignore-missing-imports", "--follow-imports=silent", "--explicit-package-bases"]
modules = mypycify([*options, *sys.argv[1:]], opt_level="3", debug_level="0")
setup(ext_modules=modules, packages=[], script_args=["build_ext", "--inplace"])
"""


class CompiledModules(BuildHookInterface[Any]):
    """Compiles in a copy of the packages, so that nothing compiled is left beside the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add what is compiled to the wheel."""
        self._copy = TemporaryDirectory()
        if version == "editable":
            return
        copy, packages = Path(self._copy.name), self.build_config.packages
        for package in packages:
            source = Path(self.root) / package
            copytree(source, copy / source.name, ignore=ignore_patterns("__pycache__"))
        modules = sorted(self._matching("modules", copy) - self._matching("exclude", copy))
        subprocess.run([sys.executable, "-c", COMPILE, *modules], cwd=copy, check=True)
        for path in copy.rglob("*.so"):
            if "build" not in path.relative_to(copy).parts:
                build_data["force_include"][str(path)] = str(path.relative_to(copy))
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """The wheel has it now."""
        self._copy.cleanup()

    def _matching(self, option: str, folder: Path) -> set[str]:
        """The files that the patterns of `option` match, relative to `folder`."""
        return {
            str(path.relative_to(folder))
            for pattern in self.config[option]
            for path in folder.glob(pattern)
        }
