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
