"""Label and field selectors."""

import re
from collections.abc import Callable
from typing import Any

from tests.kube.errors import bad_request

_TERM = re.compile(
    r"(?P<absent>!)?(?P<key>[\w./-]+)"
    r"(\s*(?P<equality>==?|!=)\s*(?P<value>[\w.-]*)|\s+(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?"
)


def labels_match(selector: str) -> Callable[[dict[str, str]], bool]:
    """A test of labels: "a=b,c!=d,e in (f, g),h notin (i),j,!k"."""
    checks = []
    for text in filter(None, re.split(r"\s*,\s*(?![^(]*\))", selector.strip())):
        if (term := _TERM.fullmatch(text)) is None:
            raise bad_request(f"unable to parse requirement: {text!r}")
        operator, values = term["equality"] or term["set"], term["values"] or term["value"] or ""
        wanted = {value.strip() for value in values.split(",")} if operator else None
        negated = term["absent"] or operator in ("!=", "notin")
        checks.append((term["key"], wanted, not negated))

    def matches(labels: dict[str, str]) -> bool:
        return all(
            (key in labels and (wanted is None or labels[key] in wanted)) == expected
            for key, wanted, expected in checks
        )

    return matches


def fields_match(selector: str) -> Callable[[dict[str, Any]], bool]:
    """A test of objects by dotted paths: "metadata.name=a,status.phase!=Running"."""
    checks = []
    for text in filter(None, selector.split(",")):
        if (term := re.fullmatch(r"([\w.]+)(==?|!=)(.*)", text.strip())) is None:
            raise bad_request(f'invalid selector: "{selector}"; can\'t understand "{text}"')
        checks.append((term[1].split("."), term[3], term[2] != "!="))

    def matches(obj: dict[str, Any]) -> bool:
        return all((_field(obj, path) == value) == expected for path, value, expected in checks)

    return matches


def _field(obj: Any, path: list[str]) -> str:
    for name in path:
        obj = obj.get(name, "") if isinstance(obj, dict) else ""
    return str(obj)
