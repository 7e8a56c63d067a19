"""What the spec of a container means for a process: its command, environment and folders.

Faithful: $(VAR) and $$(VAR), env and envFrom with their sources, command and args over the image's
entrypoint, secret, configMap, emptyDir, projected, downwardAPI, claim and image volumes. Processes
have no network and no files of their own, so in commands, environment and mounted texts the pod's
address stands for 0.0.0.0, a Service's address for its name, local folders for mount paths.
Not here: what a running pod sees of changed secrets, and whatever keeps containers apart.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.kube import kinds
from tests.kube.store import Obj, Store

_SERVICE: Final = re.compile(r"\b([a-z0-9-]+)\.([a-z0-9-]+)\.svc\b(?:\.cluster\.local)?")
_VARIABLE: Final = re.compile(r"\$(\$?)\(([\w.-]+)\)")


class MissingError(Exception):
    """Something that a pod names is not there yet."""


def with_services(store: Store, text: str) -> str:
    """`text` with addresses for names of Services; MissingError for lack of one."""

    def address(match: re.Match[str]) -> str:
        name, namespace = match.groups()
        service = store.get(kinds.SERVICE, namespace, name)
        found = service["spec"].get("clusterIP") if service else None
        if found == "None":
            selector = f"kubernetes.io/service-name={name}"
            slices = store.list(kinds.ENDPOINT_SLICE, namespace, selector)
            ready = [e for one in slices for e in one["endpoints"] if e["conditions"]["ready"]]
            found = ready[0]["addresses"][0] if ready else None
        if not found:
            raise MissingError(f"no address of Service {namespace}/{name}")
        return str(found)

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
    claims: dict[str, Path] = field(default_factory=dict)
    images: dict[str, Path] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


class Translation:
    """The texts of one pod, made true for processes."""

    def __init__(self, store: Store, pod: Obj, address: str, host: Host) -> None:
        self._store, self._pod, self._host = store, pod, host
        self._namespace = pod["metadata"]["namespace"]
        self.address = address
        self.folder = (
            host.directory / "pods" / f"{pod['metadata']['name']}-{pod['metadata']['uid']}"
        )
        self._volumes: dict[str, Path] = {}

    def mount(self) -> None:
        """Make the folders of all volumes; MissingError if a Secret or ConfigMap is missing."""
        for volume in self._pod["spec"].get("volumes") or []:
            folder = self.folder / "volumes" / volume["name"]
            folder.mkdir(parents=True, exist_ok=True)
            self._volumes[volume["name"]] = self._fill(volume, folder)

    def command(self, container: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of a container's process."""
        text = self.text(container)
        environment = self._environment(container, text)
        entrypoint = container.get("command")
        if not entrypoint:
            image = container["image"].partition("@")[0].rpartition("/")[2].partition(":")[0]
            entrypoint = self._host.entrypoints[image]
        words = [*entrypoint, *(container.get("args") or [])]
        return [text(_expanded(word, environment)) for word in words], environment

    def text(self, container: dict[str, Any]) -> Callable[[str], str]:
        """What makes texts of a container true."""
        mounts = {
            mount["mountPath"]: str(self._volumes[mount["name"]] / mount.get("subPath", ""))
            for mount in container.get("volumeMounts") or []
        }
        paths = "|".join(sorted(map(re.escape, mounts), key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w.-])({paths})(?![\w.-])") if paths else None

        def replaced(text: str) -> str:
            text = with_services(self._store, text).replace("0.0.0.0", self.address)
            return pattern.sub(lambda match: mounts[match[1]], text) if pattern else text

        return replaced

    def _environment(self, container: dict[str, Any], text: Callable[[str], str]) -> dict[str, str]:
        environment: dict[str, str] = {}
        for source in container.get("envFrom") or []:
            (kind, reference), *_ = [(k, v) for k, v in source.items() if k != "prefix"]
            data = self._data(kind.removesuffix("Ref"), reference)
            prefix = source.get("prefix", "")
            environment |= {prefix + key: value.decode() for key, value in data.items()}
        for variable in container.get("env") or []:
            if "valueFrom" in variable:
                value = self._value(variable["valueFrom"], container)
            else:
                value = _expanded(variable.get("value") or "", environment)
            if value is not None:
                environment[variable["name"]] = value
        return {name: text(value) for name, value in environment.items()}

    def _value(self, source: dict[str, Any], container: dict[str, Any]) -> str | None:
        ((kind, reference),) = source.items()
        if kind == "fieldRef":
            return self._field(reference["fieldPath"])
        if kind == "resourceFieldRef":
            part, _, resource = reference["resource"].partition(".")
            return str(container["resources"][part][resource])
        data = self._data(kind.removesuffix("KeyRef"), reference)
        if reference["key"] in data:
            return data[reference["key"]].decode()
        if reference.get("optional"):
            return None
        raise MissingError(f"no key {reference['key']} in {kind} {reference['name']}")

    def _field(self, path: str) -> str:
        if path in {"status.podIP", "status.podIPs", "status.hostIP"}:
            return self.address
        found: Any = self._pod
        name, _, key = path.partition("['")
        for part in name.split("."):
            found = found.get(part) or {}
        return str(found.get(key.removesuffix("']"), "") if key else found or "")

    def _data(self, kind: str, reference: dict[str, Any]) -> dict[str, bytes]:
        """The content of a secret or configMap."""
        name = reference.get("name") or reference["secretName"]
        stored = kinds.SECRET if kind == "secret" else kinds.CONFIG_MAP
        found = self._store.get(stored, self._namespace, name)
        if found is None and not reference.get("optional"):
            raise MissingError(f"no {kind} {self._namespace}/{name}")
        data = (found or {}).get("data") or {}
        if kind == "secret":
            return {key: base64.b64decode(value) for key, value in data.items()}
        return {key: value.encode() for key, value in data.items()}

    def _fill(self, volume: dict[str, Any], folder: Path) -> Path:
        ((kind, source),) = [(k, v) for k, v in volume.items() if k != "name"]
        if kind == "persistentVolumeClaim":
            claims = self._host.directory / "claims" / self._namespace
            folder = self._host.claims.get(source["claimName"], claims / source["claimName"])
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        if kind == "image":
            return self._host.images[source["reference"]]
        sources = source["sources"] if kind == "projected" else [{kind: source}]
        for part in sources:
            ((kind, source),) = part.items()
            if kind not in {"secret", "configMap", "downwardAPI", "emptyDir"}:
                raise NotImplementedError(f"volume {volume['name']}: {kind}")
            self._write(kind, source, folder)
        return folder

    def _write(self, kind: str, source: dict[str, Any], folder: Path) -> None:
        if kind == "emptyDir":
            return
        items = source.get("items") or []
        if kind == "downwardAPI":
            files = {
                item["path"]: self._field(item["fieldRef"]["fieldPath"]).encode() for item in items
            }
        else:
            data = self._data(kind, source)
            paths = {item["key"]: item["path"] for item in items} or {key: key for key in data}
            files = {path: data[key] for key, path in paths.items()}
        text = self.text({})
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text(content.decode()).encode())


def _expanded(text: str, environment: dict[str, str]) -> str:
    """$(VAR) by its value; $$(VAR) is $(VAR); what is unknown stays."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return match[0][1:]
        return environment.get(match[2], match[0])

    return _VARIABLE.sub(value, text)
