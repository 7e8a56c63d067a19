"""Label and field selectors."""

import re
from collections.abc import Callable

from tests.kube.errors import ApiError

_TERM = re.compile(
    r"(?P<absent>!)?(?P<key>[\w./-]+)"
    r"(\s*(?P<equality>==?|!=)\s*(?P<value>[\w.-]*)|\s+(?P<set>in|notin)\s*\((?P<values>[^)]*)\))?"
)


def labels_match(selector: str) -> Callable[[dict[str, str]], bool]:
    """A test of labels: "a=b,c!=d,e in (f, g),h notin (i),j,!k"."""
    checks = []
    for text in filter(None, re.split(r"\s*,\s*(?![^(]*\))", selector.strip())):
        if (term := _TERM.fullmatch(text)) is None:
            raise ApiError(400, "BadRequest", f"unable to parse requirement: {text!r}")
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


def names_match(selector: str) -> Callable[[str], bool]:
    """A test of names by a field selector, "metadata.name=a" or "metadata.name!=a"."""
    if selector and not selector.startswith("metadata.name"):
        words = f"this server selects by metadata.name alone, not by {selector!r}"
        raise ApiError(400, "BadRequest", words)
    matches = labels_match(selector)
    return lambda name: matches({"metadata.name": name})


def selector_of(labels: dict[str, str]) -> str:
    """The selector of what has all these labels."""
    return ",".join(f"{key}={value}" for key, value in labels.items())
