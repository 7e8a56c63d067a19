"""What the spec of a container means for a process: its command, environment and folders.

Processes have no network and no files of their own, so in commands and environment the pod's
address stands for 0.0.0.0, a Service's address for its name, local folders for mount
paths. Faithful: $(VAR) in commands, args over the image's entrypoint, env of fields and Secrets;
volumes emptyDir, persistentVolumeClaim and image. Not here: other sources and volumes, subPath, and
whatever keeps containers apart.
"""

import base64
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
    processes, whatever their containers say.
    """

    directory: Path
    entrypoints: dict[str, list[str]]
    claims: dict[str, Path]
    images: dict[str, Path]
    environment: dict[str, str]


class Translation:
    """The texts of one pod, made true for processes."""

    def __init__(self, store: Store, pod: Obj, address: str, host: Host) -> None:
        self._store, self._pod, self._host, self.address = store, pod, host, address
        metadata = pod["metadata"]
        self.folder = host.directory / "pods" / f"{metadata['name']}-{metadata['uid']}"
        self._volumes: dict[str, Path] = {}

    def mount(self) -> None:
        """Make the folders of all volumes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for volume in self._pod["spec"].get("volumes", []):
            folder = self._folder(volume)
            folder.mkdir(parents=True, exist_ok=True)
            self._volumes[volume["name"]] = folder

    def command(self, container: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of a container's process."""
        text, environment = self.text(container), {}
        for variable in container.get("env", []):
            value = variable.get("value", "")
            if "valueFrom" in variable:
                value = self._value(variable["valueFrom"])
            environment[variable["name"]] = text(value)
        entrypoint = container.get("command")
        if not entrypoint:
            image = container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0]
            entrypoint = self._host.entrypoints[image]

        def known(match: re.Match[str]) -> str:
            return environment.get(match[1], match[0])

        words = [*entrypoint, *container.get("args", [])]
        return [text(_VARIABLE.sub(known, word)) for word in words], environment

    def text(self, container: dict[str, Any]) -> Callable[[str], str]:
        """What makes texts of a container true."""
        mounts = {
            mount["mountPath"]: str(self._volumes[mount["name"]])
            for mount in container.get("volumeMounts", [])
        }
        paths = "|".join(sorted(map(re.escape, mounts), key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w.-])({paths})(?![\w.-])") if paths else None

        def replaced(text: str) -> str:
            text = with_services(self._store, text).replace("0.0.0.0", self.address)
            return pattern.sub(lambda match: mounts[match[1]], text) if pattern else text

        return replaced

    def _value(self, source: dict[str, Any]) -> str:
        if "secretKeyRef" in source:
            name, key = source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]
            found = self._store.get(kinds.SECRET, self._pod["metadata"]["namespace"], name) or {}
            if key not in found.get("data", {}):
                raise MissingError(f"no key {key} in a Secret {name}")
            return base64.b64decode(found["data"][key]).decode()
        path = source["fieldRef"]["fieldPath"]
        if path == "status.podIP":
            return self.address
        field: Any = self._pod
        for part in path.split("."):
            field = field[part]
        return str(field)

    def _folder(self, volume: dict[str, Any]) -> Path:
        if "image" in volume:
            return self._host.images[volume["image"]["reference"]]
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            return self._host.claims.get(claim, self._host.directory / "claims" / claim)
        if "emptyDir" in volume:
            return self.folder / "volumes" / volume["name"]
        raise NotImplementedError(f"the kubelet of the tests has no such volume: {volume}")
