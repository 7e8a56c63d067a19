"""Errors of the API, with the codes, reasons and words of the real server."""

from typing import Any

from tests.kube.kinds import Kind


class ApiError(Exception):
    """What a request is refused with.

    Attributes: `code`, the HTTP status; `reason`, its name in the API; `message`; `details`.
    """

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> dict[str, Any]:
        """The Status object that the server answers."""
        words = {"message": self.message, "reason": self.reason, "details": self.details}
        head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return {**head, **words, "code": self.code}


def of_object(code: int, reason: str, kind: Kind, name: str, words: str) -> ApiError:
    """An error about one object: `pods "a" not found`."""
    subject = f'{kind.resource} "{name}"' if name else kind.resource
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return ApiError(code, reason, f"{subject} {words}", **details)


def not_found(kind: Kind, name: str) -> ApiError:
    return of_object(404, "NotFound", kind, name, "not found")
