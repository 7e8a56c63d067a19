"""Label and field selectors."""

import re
from collections.abc import Callable
from typing import Any

from tests.kube.errors import bad_request

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<no_key>[\w./-]+)
      | (?P<key>[\w./-]+)\s*(?:
            (?P<operator>==|=|!=)\s*(?P<value>[\w.-]*)
          | \s(?P<set>in|notin)\s*\((?P<values>[^)]*)\)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def labels_match(selector: str) -> Callable[[dict[str, str]], bool]:
    """A test of labels: "a=b,c!=d,e in (f, g),h notin (i),j,!k"."""
    checks: list[Callable[[dict[str, str]], bool]] = []
    position = 0
    while position < len(selector.rstrip()):
        match = _REQUIREMENT.match(selector, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: {selector[position:]!r}")
        position = match.end()
        checks.append(_check(**match.groupdict()))
    return lambda labels: all(check(labels) for check in checks)


def _check(
    absent: str | None,
    no_key: str | None,
    key: str | None,
    operator: str | None,
    value: str | None,
    set: str | None,
    values: str | None,
) -> Callable[[dict[str, str]], bool]:
    if absent:
        return lambda labels: no_key not in labels
    if not operator and not set:
        return lambda labels: key in labels
    wanted = {value} if operator else {one.strip() for one in (values or "").split(",")}
    if operator == "!=" or set == "notin":
        return lambda labels: labels.get(key or "") not in wanted
    return lambda labels: labels.get(key or "") in wanted


def fields_match(selector: str) -> Callable[[dict[str, Any]], bool]:
    """A test of objects by dotted paths: "metadata.name=a,status.phase!=Running"."""
    checks = []
    for term in filter(None, selector.split(",")):
        match = re.fullmatch(r"([\w.]+?)(==|=|!=)(.*)", term.strip())
        if match is None:
            raise bad_request(f'invalid selector: "{selector}"; can\'t understand "{term}"')
        path, operator, value = match.groups()
        checks.append((path.split("."), operator != "!=", value))

    def matches(obj: dict[str, Any]) -> bool:
        return all((_field(obj, path) == value) == equal for path, equal, value in checks)

    return matches


def _field(obj: Any, path: list[str]) -> str:
    for name in path:
        obj = obj.get(name, "") if isinstance(obj, dict) else ""
    return str(obj)
