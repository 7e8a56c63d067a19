"""What a release keeps over its upgrades: the password of Redis, and the workers' caches."""

import base64
import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml

from tests.helm.cases import CASES, pool
from tests.helm.chart import CHART, NAMESPACE, RELEASE, Object, chart, files, named, of_kind, render

SECRET = "redis/secret.yaml"
DEPLOYMENT = "gateway/deployment.yaml"


class Cluster:
    """An API server that has nothing but Secrets, to be looked up."""

    def __init__(self) -> None:
        self.secrets: dict[str, Object] = {}

    def put(self, name: str, version: str, **data: str) -> None:
        """Have a Secret, or another version of it."""
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        metadata = {"name": name, "namespace": NAMESPACE, "resourceVersion": version}
        self.secrets[name] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "data": encoded,
        }

    def answer(self, path: str) -> Object | None:
        """What is at a path."""
        if path == "/api/v1":
            secrets = {"name": "secrets", "namespaced": True, "kind": "Secret", "verbs": ["get"]}
            return {"kind": "APIResourceList", "groupVersion": "v1", "resources": [secrets]}
        prefix = f"/api/v1/namespaces/{NAMESPACE}/secrets/"
        return self.secrets.get(path.removeprefix(prefix)) if path.startswith(prefix) else None


@pytest.fixture
def cluster() -> Iterator[tuple[Cluster, helm.Config]]:
    """The cluster, and Helm connected to it."""
    secrets = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = secrets.answer(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}
            body = json.dumps(found or missing).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        config = {
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "c",
        }
        with helm.Config(kubeconfig_content=json.dumps(config), namespace=NAMESPACE) as connected:
            yield secrets, connected
        server.shutdown()
        thread.join()


def rendered(config: helm.Config, values: Object, template: str) -> Object:
    """The first object of a template, in the cluster."""
    found = config.render(chart(), values, name=RELEASE, namespace=NAMESPACE)
    first: Object = next(yaml.safe_load_all(found[f"radixgate/templates/{template}"]))
    return first


def checksum(deployment: Object) -> str:
    """What changes when the pods have to."""
    return str(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/redis"])


def password(secret: Object) -> str:
    """The one in the Secret; its URL has the same."""
    found = base64.b64decode(secret["data"]["password"]).decode()
    url = base64.b64decode(secret["data"]["url"]).decode()
    assert url == f"redis://:{found}@{RELEASE}-radixgate-redis.{NAMESPACE}.svc:6379"
    return found


def test_a_password_is_random_at_first() -> None:
    one, other = (password(yaml.safe_load(files({})[SECRET])) for _ in range(2))
    assert re.fullmatch("[A-Za-z0-9]{32}", one)
    assert one != other


def test_an_upgrade_keeps_the_password(cluster: tuple[Cluster, helm.Config]) -> None:
    secrets, config = cluster
    secrets.put("test-radixgate-redis", "1", password="kept")
    before = checksum(rendered(config, {}, DEPLOYMENT))
    assert password(rendered(config, {}, SECRET)) == "kept"
    assert checksum(rendered(config, {}, DEPLOYMENT)) == before


def test_a_given_password_wins_and_restarts_what_uses_it(
    cluster: tuple[Cluster, helm.Config],
) -> None:
    secrets, config = cluster
    secrets.put("test-radixgate-redis", "1", password="kept")
    given = CASES["given password"]
    assert password(rendered(config, given, SECRET)) == "correct-horse-battery"
    before = checksum(rendered(config, {}, DEPLOYMENT))
    assert checksum(rendered(config, given, DEPLOYMENT)) != before
    redis = rendered(config, given, "redis/statefulset.yaml")
    assert checksum(redis) == checksum(rendered(config, given, DEPLOYMENT))


@pytest.mark.parametrize(
    ("case", "secret"),
    [
        ("password of another", "redis-login"),
        ("external redis by tls", "redis-url"),
        ("external redis by tls", "redis-ca"),
    ],
)
def test_a_changed_secret_of_others_restarts_gateways(
    cluster: tuple[Cluster, helm.Config], case: str, secret: str
) -> None:
    secrets, config = cluster
    secrets.put(secret, "1", any="thing")
    before = checksum(rendered(config, CASES[case], DEPLOYMENT))
    assert checksum(rendered(config, CASES[case], DEPLOYMENT)) == before
    secrets.put(secret, "2", any="thing else")
    assert checksum(rendered(config, CASES[case], DEPLOYMENT)) != before


@pytest.mark.parametrize("case", ["password of another", "external redis", "sentinels"])
def test_no_secret_is_made_where_there_is_one(case: str) -> None:
    assert not of_kind(render(CASES[case]), "Secret")


def test_a_new_chart_that_changes_nothing_restarts_nothing(tmp_path: Path) -> None:
    values = CASES["given password"] | {"workers": [pool()], "image": {"tag": "0.1.0"}}
    shutil.copytree(CHART, tmp_path / "radixgate")
    definition = tmp_path / "radixgate" / "Chart.yaml"
    definition.write_text(definition.read_text().replace("ersion: 0.1.0", "ersion: 9.9.9"))
    with helm.Chart.load(tmp_path / "radixgate") as newer:
        after = render(values, of=newer)
    for before in of_kind(render(values), "Deployment", "StatefulSet"):
        now = named(after, before["kind"], before["metadata"]["name"])
        assert now["metadata"]["labels"]["helm.sh/chart"] == "radixgate-9.9.9"
        assert now["spec"] == before["spec"]


def test_notes_tell_the_next_three_commands() -> None:
    notes = files(CASES["several pools"])["NOTES.txt"]
    commands = [line.split()[0] for line in notes.splitlines() if line.startswith("  k")]
    assert commands == ["kubectl", "kubectl"]
    assert "helm -n llm test test" in notes
    assert "pool elastic with Qwen3-0.6B" in notes
    assert "none yet: add a pool" in files({})["NOTES.txt"]
