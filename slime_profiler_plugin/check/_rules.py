"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from ._survey import FileSurvey

#: ``error``: a viewer loses or misdraws something, or the file is not valid. ``warning``: it may mislead.
Severity = Literal["error", "warning", "info"]
#: What takes a fault away: ``check --fix``, ``merge`` (faults of several files together), or nothing.
Mender = Literal["fix", "merge"]


@dataclass(frozen=True)
class Found:
    """What a rule found in one file, or in a set of them: how many, in words, and the first of them."""

    count: int
    message: str
    example: str = ""
    files: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """One finding. `file` is ``None`` for what lies in several `files` together."""

    file: str | None
    files: tuple[str, ...]
    code: str
    title: str
    severity: Severity
    count: int
    message: str
    example: str
    mended_by: Mender | None


class Rule(NamedTuple):
    """A code, what it means, and the function that looks for it, in a file or in a set of files."""

    code: str
    title: str
    severity: Severity
    mended_by: Mender | None
    in_file: Callable[[FileSurvey], Iterable[Found]] | None = None
    in_set: Callable[[list[FileSurvey]], Iterable[Found]] | None = None

    def finding(self, found: Found, file: str | None) -> Finding:
        """What was `found` in `file`, as it is reported."""
        files = found.files if file is None else (file,)
        return Finding(
            file,
            files,
            self.code,
            self.title,
            self.severity,
            found.count,
            found.message,
            found.example,
            self.mended_by,
        )


#: Every rule by its code.
RULES: Final[dict[str, Rule]] = {}

FileRule = Callable[["FileSurvey"], Iterable[Found]]
SetRule = Callable[[list["FileSurvey"]], Iterable[Found]]


def file_rule(
    code: str, title: str, severity: Severity, mended_by: Mender | None = None
) -> Callable[[FileRule], FileRule]:
    """Register a rule over one file."""

    def register(function: FileRule) -> FileRule:
        assert code not in RULES
        RULES[code] = Rule(code, title, severity, mended_by, in_file=function)
        return function

    return register


def set_rule(
    code: str, title: str, severity: Severity, mended_by: Mender | None = None
) -> Callable[[SetRule], SetRule]:
    """Register a rule over the files that are checked together."""

    def register(function: SetRule) -> SetRule:
        assert code not in RULES
        RULES[code] = Rule(code, title, severity, mended_by, in_set=function)
        return function

    return register


def some(count: int, noun: str, verb: str = "", plural_verb: str = "") -> str:
    """A number and its noun, and the verb that agrees with them.

    >>> some(1, "slice", "crosses", "cross"), some(3, "slice", "crosses", "cross"), some(2, "id")
    ('1 slice crosses', '3 slices cross', '2 ids')
    """
    text = f"{count} {noun}" if count == 1 else f"{count} {noun}s"
    verb = verb if count == 1 else plural_verb or verb
    return f"{text} {verb}" if verb else text
