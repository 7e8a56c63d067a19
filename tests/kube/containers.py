"""What the spec of a container means for a process: its command, environment and folders.

Processes have no network and no files of their own, so in commands and environment the pod's
address stands for 0.0.0.0, a Service's address for its name, local folders for mount
paths. Faithful: $(VAR) in commands, args over the image's entrypoint, env of fields and Secrets;
volumes emptyDir, persistentVolumeClaim and image. Not here: other sources and volumes, subPath, and
whatever keeps containers apart.
"""

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.kube import kinds
from tests.kube.store import Obj, Store

_SERVICE: Final = re.compile(r"\b([a-z0-9-]+)\.([a-z0-9-]+)\.svc\b(?:\.cluster\.local)?")
_VARIABLE: Final = re.compile(r"\$\(([\w.-]+)\)")


class MissingError(Exception):
    """Something that a pod names is not there yet."""


def with_services(store: Store, text: str) -> str:
    """`text` with cluster IPs for names of Services; MissingError for lack of one."""

    def address(match: re.Match[str]) -> str:
        name, namespace = match.groups()
        service = store.get(kinds.SERVICE, namespace, name)
        if service is None:
            raise MissingError(f"no Service {namespace}/{name}")
        return str(service["spec"]["clusterIP"])

    return _SERVICE.sub(address, text)


@dataclass
class Host:
    """What a test provides in place of registries and storage.

    Attributes: `entrypoints` by the last part of an image's repository; `claims` by name, others
    are made below `directory`; `images` by reference, for image volumes; `environment` of all
    processes, whatever their containers say; `kubeconfig`, the text of one for a user.
    """

    directory: Path
    entrypoints: dict[str, list[str]]
    claims: dict[str, Path]
    images: dict[str, Path]
    environment: dict[str, str]
    kubeconfig: Callable[[str], str]


class Translation:
    """One pod's commands and environments, made true for processes; `folder` is all its own."""

    def __init__(self, store: Store, pod: Obj, address: str, host: Host) -> None:
        self._store, self._pod, self._address, self._host = store, pod, address, host
        metadata = pod["metadata"]
        self.folder = host.directory / "pods" / f"{metadata['name']}-{metadata['uid']}"
        self._volumes: dict[str, Path] = {}
        self._given = {"HOME": str(self.folder), "OMP_NUM_THREADS": "1"}
        self._given |= {name: os.environ.get(name, "") for name in ("PATH", "PYTHONPATH")}

    def mount(self) -> None:
        """Make the folders of all volumes, and the token of the service account."""
        namespace, spec = self._pod["metadata"]["namespace"], self._pod["spec"]
        self.folder.mkdir(parents=True, exist_ok=True)
        for volume in spec.get("volumes", []):
            folder = self._volumes[volume["name"]] = self._folder_of(volume)
            folder.mkdir(parents=True, exist_ok=True)
        if spec.get("automountServiceAccountToken", True):
            account = f"system:serviceaccount:{namespace}:{spec['serviceAccountName']}"
            (self.folder / "kubeconfig").write_text(self._host.kubeconfig(account))
            self._given["KUBECONFIG"] = str(self.folder / "kubeconfig")

    def command(self, container: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of a container's process; MissingError if it must wait."""
        paths = {
            mount["mountPath"]: str(self._volumes[mount["name"]])
            for mount in container.get("volumeMounts", [])
        }
        environment = {
            variable["name"]: self._text(self._value(variable), paths)
            for variable in container.get("env", [])
        }

        def known(match: re.Match[str]) -> str:
            return environment.get(match[1], match[0])

        image = container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0]
        words = [*container.get("command", []), *container.get("args", [])]
        words = [self._text(_VARIABLE.sub(known, word), paths) for word in words]
        if "command" not in container:
            words = [*self._host.entrypoints[image], *words]
        return words, self._given | environment | self._host.environment

    def _text(self, text: str, paths: dict[str, str]) -> str:
        text = with_services(self._store, text).replace("0.0.0.0", self._address)
        mounts = "|".join(sorted(map(re.escape, paths), key=len, reverse=True))
        if not mounts:
            return text
        return re.sub(rf"(?<![\w.-])({mounts})(?![\w.-])", lambda match: paths[match[1]], text)

    def _value(self, variable: dict[str, Any]) -> str:
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            name, key = source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]
            secret = self._store.get(kinds.SECRET, self._pod["metadata"]["namespace"], name)
            if secret is None or key not in secret["data"]:
                raise MissingError(f"no key {key} in a Secret {name}")
            return base64.b64decode(secret["data"][key]).decode()
        if "fieldRef" not in source:
            return str(variable.get("value", ""))
        path = source["fieldRef"]["fieldPath"]
        if path == "status.podIP":
            return self._address
        found: Any = self._pod
        for name in path.split("."):
            found = found[name]
        return str(found)

    def _folder_of(self, volume: dict[str, Any]) -> Path:
        if "image" in volume:
            return self._host.images[volume["image"]["reference"]]
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            return self._host.claims.get(claim, self._host.directory / "claims" / claim)
        if "emptyDir" in volume:
            return self.folder / "volumes" / volume["name"]
        raise NotImplementedError(f"the kubelet of the tests has no such volume: {volume}")
