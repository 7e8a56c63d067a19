"""Who asks, and whether a Role in the store lets them."""

import base64
import json
from collections.abc import Iterator, Mapping

from tests.kube import kinds
from tests.kube.errors import ApiError, of_object
from tests.kube.requests import Target
from tests.kube.store import Obj, Store

ADMIN = "admin"


def user_of(headers: Mapping[str, str]) -> str:
    """Who asks: the token's user, or whom the administrator impersonates; 401 of a strange token.

    Without a token it is the administrator: Go's clients send none over plain HTTP.
    """
    token = headers.get("Authorization", "").removeprefix("Bearer ")
    try:
        user = base64.urlsafe_b64decode(token).decode() or ADMIN
    except ValueError:
        raise ApiError(401, "Unauthorized", "Unauthorized") from None
    return headers.get("Impersonate-User", user) if user == ADMIN else user


def kubeconfig(server: str, user: str, namespace: str) -> str:
    """The text of a kubeconfig (JSON, which is YAML) for a user."""
    token = base64.urlsafe_b64encode(user.encode()).decode()
    context = {"cluster": "test", "user": user, "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": context}],
    }
    return json.dumps(config)


def check_access(store: Store, user: str, verb: str, target: Target) -> None:
    """403 unless a RoleBinding of the namespace gives the user a Role that allows it.

    Not here: resourceNames, other subjects than service accounts, and ClusterRoles.
    """
    kind, namespace = target.kind, target.namespace or ""
    resource = f"{kind.plural}/{target.subresource}".rstrip("/")
    wanted = {"verbs": verb, "apiGroups": kind.group, "resources": resource}
    for rule in _rules(store, user, namespace):
        if all(value in rule[field] for field, value in wanted.items()):
            return
    if user != ADMIN:
        scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        what = f'{verb} resource "{resource}" in API group "{kind.group}" {scope}'
        words = f'is forbidden: User "{user}" cannot {what}'
        raise of_object(403, "Forbidden", kind, target.name, words)


def _rules(store: Store, user: str, namespace: str) -> Iterator[Obj]:
    for binding in store.list(kinds.ROLE_BINDING, namespace):
        role = store.get(kinds.ROLE, namespace, binding["roleRef"]["name"]) or {"rules": []}
        for one in binding["subjects"]:
            if user == f"system:serviceaccount:{one['namespace']}:{one['name']}":
                yield from role["rules"]
