"""docs/check.md and the rules say the same, and its examples are what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slime_profiler_plugin.check import RULES, check_paths

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "check.md").read_text()
SECTIONS = dict(re.findall(r"^## (SP\d+: .*?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
#: Codes that cannot come without another.
WITH = {"SP108": {"SP105"}, "SP505": {"SP504"}}


def test_every_rule_has_its_section_in_order_and_no_other_has_one():
    assert list(SECTIONS) == [f"{rule.code}: {rule.title}" for rule in sorted(RULES.values())]


@pytest.mark.parametrize("rule", sorted(RULES.values()), ids=lambda rule: rule.code)
def test_section_says_severity_and_what_mends(rule):
    mended = {"fix": " · mended by --fix", "merge": " · mended by merge", None: ""}[rule.mended_by]
    assert SECTIONS[f"{rule.code}: {rule.title}"].startswith(f"\n*{rule.severity}{mended}*\n\n")


@pytest.mark.parametrize("rule", sorted(RULES.values()), ids=lambda rule: rule.code)
def test_example_gives_its_code_and_no_other(rule, tmp_path):
    section = SECTIONS[f"{rule.code}: {rule.title}"]
    paths = []
    for about, text in re.findall(r"^```json ?(.*?)\n(.*?)\n```$", section, re.M | re.S):
        path = tmp_path / (about if about.endswith(".json") else "example.json")
        content = text.encode()
        if about == "escaped":
            content = text.encode("ascii").decode("unicode_escape").encode("latin-1")
        path.write_bytes(content)
        paths.append(path)
    if rule.code == "SP414":
        paths = [tmp_path / "gone.json"]
    found = {finding.code for finding in check_paths(paths).findings}
    assert found == {rule.code} | WITH.get(rule.code, set())


def test_titles_are_sentences_in_the_present_tense_of_few_words():
    for rule in RULES.values():
        assert re.fullmatch(r"[A-Z][^.]*", rule.title), rule.code
        assert len(rule.title) <= 60, rule.code
    assert all(re.fullmatch(r"SP[1-6]\d\d", code) for code in RULES)


def test_links_within_the_page_lead_to_sections():
    def anchor(title: str) -> str:
        return re.sub(r"[^\w -]", "", title).lower().replace(" ", "-")

    anchors = {anchor(title) for title in SECTIONS}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
