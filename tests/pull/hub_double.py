"""A Hugging Face hub of one repository on a port of its own, as far as downloads need it."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

REVISION = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub(repository: str, directory: Path, served: list[str]) -> Iterator[str]:
    """Serve the files of `directory`; yields the endpoint, notes in `served` what was fetched."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path.startswith(f"/api/models/{repository}/tree/"):
                self._json(
                    [
                        {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0"}
                        for f in directory.iterdir()
                    ]
                )
            elif path.startswith(f"/api/models/{repository}"):
                siblings = [
                    {"rfilename": f.name, "size": f.stat().st_size} for f in directory.iterdir()
                ]
                self._json({"id": repository, "sha": REVISION, "siblings": siblings})
            elif path.startswith(f"/{repository}/resolve/{REVISION}/"):
                name = path.rpartition("/")[2]
                if self.command == "GET":
                    served.append(name)
                self._send((directory / name).read_bytes())
            else:
                self.send_error(404)

        def _json(self, value: object) -> None:
            self._send(json.dumps(value).encode())

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", REVISION)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
