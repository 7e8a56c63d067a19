"""What a request is about: the object or collection that its path names, and the verb."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.kube import kinds
from tests.kube.errors import ApiError
from tests.kube.kinds import Kind


class Target(NamedTuple):
    """What a path names; `namespace` None means all of them, `name` "" the collection."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str


def target_of(path: str) -> Target:
    """That of "/apis/apps/v1/namespaces/a/deployments/b/status"; 404 of what is not served."""
    steps = path.strip("/").split("/")
    if steps[0] == "api":
        steps.insert(1, "")
    group, version, *rest = [*steps[1:], "", "", "", ""]
    namespace = None
    if rest[0] == "namespaces" and rest[2] not in ("", "status"):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.BY_PATH.get((str(group), str(version), rest[0]))
    if kind is None or steps[0] not in ("api", "apis"):
        raise ApiError(404, "NotFound", "the server could not find the requested resource")
    return Target(kind, namespace, *[*rest[1:], "", ""][:2])


def verb_of(method: str, target: Target, query: Mapping[str, str]) -> str:
    """The verb that Roles allow or not."""
    if method == "GET":
        if query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if target.name else "list"
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(method, "")
    if bool(target.name) == (verb == "create") or not verb:
        words = "the server does not allow this method on the requested resource"
        raise ApiError(405, "MethodNotAllowed", words)
    return verb
