"""Index notation: "bld,d->bld" says how a primitive reads its operands, one letter a dimension."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from trainc.core.errors import ShapeError


@dataclass(frozen=True)
class Spec:
    """A parsed index notation.

    Attributes:
        operands: Index letters of each operand.
        output: Index letters of the result.
    """

    operands: tuple[str, ...]
    output: str

    @property
    def reduced(self) -> str:
        """Letters that occur in the operands only, in order of first use."""
        seen = dict.fromkeys("".join(self.operands))
        return "".join(letter for letter in seen if letter not in self.output)


@lru_cache(maxsize=1024)
def parse_spec(text: str) -> Spec:
    """Parse "ab,b->ab".

    A scalar operand is an empty term, or "." where it stands alone (".->ab"); "->ab" has no operand.

    Raises:
        ShapeError: No arrow, a character that is not a letter, or a letter twice in one term.
    """
    left, arrow, output = text.replace(" ", "").partition("->")
    terms = left.split(",") if left else []
    spec = Spec(tuple("" if term == "." else term for term in terms), output)
    for term in (*spec.operands, output):
        if not arrow or len(set(term)) != len(term) or not (term == "" or term.isalpha()):
            raise ShapeError(f"expected index notation such as 'bld,d->bld', each letter once a term; got {text!r}")
    return spec


def index_sizes(text: str, shapes: Sequence[tuple[int, ...]], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the size of every index letter.

    Args:
        text: Index notation.
        shapes: Operand shapes.
        known: Sizes of letters that no operand has.

    Raises:
        ShapeError: A wrong number of operands, a rank that differs from its term, or two sizes for one letter.
    """
    spec = parse_spec(text)
    if len(spec.operands) != len(shapes):
        raise ShapeError(f"expected {len(spec.operands)} operands for {text!r}, got {len(shapes)}")
    sizes = dict(known or {})
    for position, (term, shape) in enumerate(zip(spec.operands, shapes, strict=True)):
        if len(term) != len(shape):
            raise ShapeError(f"operand {position} of {text!r} needs rank {len(term)}, got shape {shape}")
        for letter, size in zip(term, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ShapeError(
                    f"index {letter!r} of {text!r} has size {sizes[letter]} and {size} (operand {position})"
                )
    missing = [letter for letter in spec.output if letter not in sizes]
    if missing:
        raise ShapeError(f"no operand of {text!r} gives the size of {missing}; pass it in sizes")
    return sizes
