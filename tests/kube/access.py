"""Who asks, and whether a Role in the store lets them."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.kube import kinds
from tests.kube.errors import ApiError, forbidden
from tests.kube.store import Store
from tests.kube.targets import Target

ADMIN = "admin"


def token_of(user: str) -> str:
    """The bearer token that stands for a user."""
    return base64.urlsafe_b64encode(user.encode()).decode().rstrip("=")


def user_of(headers: Mapping[str, str]) -> str:
    """Who asks: the token's user, or whom the administrator impersonates; 401 of a strange token.

    Without a token it is the administrator: Go's clients send none over plain HTTP.
    """
    scheme, _, token = headers.get("Authorization", "Bearer ").partition(" ")
    try:
        user = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode() or ADMIN
    except ValueError:
        user = ""
    if scheme != "Bearer" or not (user == ADMIN or user.startswith("system:serviceaccount:")):
        raise ApiError(401, "Unauthorized", "Unauthorized")
    return headers.get("Impersonate-User", user) if user == ADMIN else user


def kubeconfig(server: str, user: str, namespace: str) -> str:
    """A kubeconfig (JSON, which is YAML) for a user."""
    name = "test"
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": server}}],
            "users": [{"name": user, "user": {"token": token_of(user)}}],
            "contexts": [
                {"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}
            ],
        }
    )


def check_access(
    store: Store, user: str, verb: str, target: Target, query: Mapping[str, str]
) -> None:
    """403 unless a RoleBinding of the namespace gives the user a Role that allows it."""
    kind, name, subresource = target.kind, target.name, target.subresource
    namespace = target.namespace or ""
    resource = "/".join(filter(None, (kind.plural, subresource)))
    if not name and query.get("fieldSelector", "").startswith("metadata.name="):
        name = query["fieldSelector"].removeprefix("metadata.name=")
    wanted = {"verbs": verb, "apiGroups": kind.group, "resources": resource, "resourceNames": name}
    if user == ADMIN or any(_allows(rule, wanted) for rule in _rules(store, user, namespace)):
        return
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    why = f'User "{user}" cannot {verb} resource "{resource}" in API group "{kind.group}" {scope}'
    raise forbidden(kind, target.name, why)


def _rules(store: Store, user: str, namespace: str) -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = []
    for binding in store.list(kinds.ROLE_BINDING, namespace) if namespace else ():
        users = {
            f"system:serviceaccount:{subject.get('namespace', namespace)}:{subject['name']}"
            for subject in binding.get("subjects", [])
            if subject["kind"] == "ServiceAccount"
        }
        role = store.get(kinds.ROLE, namespace, binding["roleRef"]["name"])
        if user in users and role:
            rules += role.get("rules", [])
    return rules


def _allows(rule: dict[str, Any], wanted: dict[str, str]) -> bool:
    if "resourceNames" not in rule:
        wanted = {field: value for field, value in wanted.items() if field != "resourceNames"}
    return all(value in rule[field] or "*" in rule[field] for field, value in wanted.items())
