"""The site's pages are complete; `make docs` builds them and follows every link."""

import re

from tests.docs.blocks import ROOT
from trainc import training

PAGES = sorted((ROOT / "docs").rglob("*.md"))


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES)


def test_the_reference_has_every_name_once():
    listed = [name for page in PAGES for name in re.findall(r"^::: trainc\.training\.(\w+)$", page.read_text(), re.M)]
    # An alias has no page of its own.
    assert sorted(listed) == sorted(set(training.__all__) - {"SmallByteLanguageModelTrainer"})


def test_every_reference_to_the_specification_names_a_section():
    sections = set(re.findall(r"^#+ (\d+(?:\.\d+)?)\.? ", (ROOT / "docs/spec.md").read_text("utf-8"), re.MULTILINE))
    number = r"\d+(?:\.\d+)?"
    reference = re.compile(rf"\bspec sections?\s+({number}(?:(?:,| and)\s+{number})*)")
    found = [
        (path.relative_to(ROOT).as_posix(), section)
        for path in sorted((ROOT / "trainc").rglob("*.py"))
        for match in reference.finditer(path.read_text("utf-8"))
        for section in re.findall(number, match[1])
    ]
    assert len(found) > 50  # otherwise the pattern no longer finds them
    assert [(path, section) for path, section in found if section not in sections] == []
