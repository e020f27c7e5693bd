"""Layer patterns: a short way to write the layers of a deep model, such as `4*(mamba3, attention)`."""

import functools
from importlib import resources

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedEOF, UnexpectedInput

from trainc.core.errors import ConfigError

MAX_LAYERS = 4096
_MAX_LENGTH = 1000  # of the text; it also bounds how deep parentheses can be nested

_TERMINALS = {
    "NAME": "a layer kind",
    "COUNT": "a count",
    "STAR": "'*'",
    "COMMA": "','",
    "LPAR": "'('",
    "RPAR": "')'",
    "$END": "the end",
}


@functools.cache
def _parser() -> Lark:
    grammar = resources.files("trainc.ir").joinpath("layer_pattern.lark").read_text(encoding="utf-8")
    return Lark(grammar, start="pattern", parser="lalr")


def parse_layer_pattern(text: str) -> tuple[str, ...]:
    """Returns the layer kinds that a pattern stands for, in order.

    A pattern is a list of items separated by commas; an item is a kind, or a count times a kind or a pattern in
    parentheses, which may hold counts again. Kinds are names; whether a model knows them is not checked here.

    Args:
        text: The pattern.

    Raises:
        ConfigError: The text is not a pattern, a count is zero, or the layers are more than `MAX_LAYERS`; the
            message names the column, counted from one.
    """
    if len(text) > _MAX_LENGTH:
        raise ConfigError(f"a layer pattern must have at most {_MAX_LENGTH} characters, got {len(text)}")
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise ConfigError(_explain(text, error)) from None
    return _kinds(tree, text)


def _kinds(node: "Tree[Token] | Token", text: str) -> tuple[str, ...]:
    if isinstance(node, Token):
        return (str(node),)
    if node.data == "repeat":
        count, body = node.children
        times, column = _count(count, text)
        kinds = _kinds(body, text)
    else:
        times, column = 1, 1
        kinds = tuple(kind for child in node.children for kind in _kinds(child, text))
    if times * len(kinds) > MAX_LAYERS:
        raise ConfigError(f"layer pattern {text!r}, column {column}: it stands for more than {MAX_LAYERS} layers")
    return kinds * times


def _count(token: "Tree[Token] | Token", text: str) -> tuple[int, int]:
    """Returns the value of a count and the column where it stands."""
    assert isinstance(token, Token)
    column = (token.start_pos or 0) + 1
    if not 1 <= int(token) <= MAX_LAYERS:
        raise ConfigError(f"layer pattern {text!r}, column {column}: a count must be in 1..{MAX_LAYERS}, got {token}")
    return int(token), column


def _explain(text: str, error: UnexpectedInput) -> str:
    expected = getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None)
    wanted = " or ".join(sorted(_TERMINALS[name] for name in expected or () if name in _TERMINALS))
    token = getattr(error, "token", None)
    if isinstance(error, UnexpectedEOF) or (token is not None and token.type == "$END"):
        column, found = len(text) + 1, "the end"
    else:
        column = (error.pos_in_stream or 0) + 1
        found = repr(str(token) if token is not None else text[error.pos_in_stream or 0])
    return f"layer pattern {text!r}, column {column}: expected {wanted}, got {found}"
