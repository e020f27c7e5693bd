"""The Python blocks of a page, each a program of its own."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def python_blocks(page: str) -> dict[str, str]:
    """Return the blocks of a page by the heading they stand under, with its line number in the page.

    A block is preceded by empty lines, so that a traceback has the page's line numbers.
    """
    text = (ROOT / page).read_text("utf-8")
    blocks = {}
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start(1))
        # Text in a block is no heading: only what stands outside of blocks is looked at.
        outside = _BLOCK.sub("", text[: match.start()])
        heading = _HEADING.findall(outside)[-1]
        blocks[f"{heading}:{line + 1}"] = "\n" * line + match.group(1)
    return blocks
