"""Errors of the API, with the codes, reasons and words of the real server."""

from typing import Any

from tests.kube.kinds import Kind


class ApiError(Exception):
    """What a request is refused with.

    Attributes: `code`, the HTTP status; `reason`, its name in the API; `message`; `details`.
    """

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}

    def status(self) -> dict[str, Any]:
        """The Status object that the server answers."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


def _details(kind: Kind, name: str) -> dict[str, Any]:
    return {"name": name, "group": kind.group, "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.resource} "{name}" not found', _details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    words = f'{kind.resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", words, _details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    words = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", words, _details(kind, name))


def stale(kind: Kind, name: str) -> ApiError:
    """A conflict of resource versions."""
    advice = "please apply your changes to the latest version and try again"
    return conflict(kind, name, f"the object has been modified; {advice}")


def invalid(kind: Kind, name: str, why: str) -> ApiError:
    words = f'{kind.kind}{"." * bool(kind.group)}{kind.group} "{name}" is invalid: {why}'
    return ApiError(422, "Invalid", words, {**_details(kind, name), "kind": kind.kind})


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    subject = f'{kind.resource} "{name}"' if name else kind.resource
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(kind, name))


def bad_request(why: str) -> ApiError:
    return ApiError(400, "BadRequest", why)


def expired(asked: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def too_large(asked: int, newest: int) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    words = f"Timeout: Too large resource version: {asked}, current: {newest}"
    return ApiError(504, "Timeout", words, {"causes": [cause], "retryAfterSeconds": 1})
