"""Documentation that would rot silently: the reference of record files, and links between pages."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from slime_profiler_plugin import schema

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md"))]
REFERENCE = (ROOT / "docs" / "record-files.md").read_text()


def _section(kind: str) -> str:
    for section in re.split(r"^## ", REFERENCE, flags=re.MULTILINE):
        if f"`{kind}`" in section.partition("\n")[0]:
            return section
    raise AssertionError(f"no section for {kind}")


@pytest.mark.parametrize("line", schema.Line.__args__)
def test_every_field_of_every_line_is_described(line):
    section = _section(line.__struct_config__.tag)
    described = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\|([^|]*)\|", section, re.MULTILINE))))
    assert {field.name for field in msgspec.structs.fields(line)} <= described


def test_reference_names_the_version_it_describes():
    assert REFERENCE.startswith(f"# Record files, version {schema.VERSION_TEXT}\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
