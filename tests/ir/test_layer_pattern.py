import pytest

from trainc.core.errors import ConfigError
from trainc.ir.layer_pattern import MAX_LAYERS, parse_layer_pattern


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("mamba3", "m"),
        ("mamba3, attention", "ma"),
        ("4*(mamba3, attention)", "mamamama"),
        ("2 * mamba3,attention", "mma"),
        ("2*(mamba3, 3*(attention, mamba3), attention)", "mamamamamamamama"),
        (" 1*(\n2*mamba3\t)", "mm"),
    ],
)
def test_patterns(text: str, layers: str) -> None:
    assert parse_layer_pattern(text) == tuple({"m": "mamba3", "a": "attention"}[kind] for kind in layers)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "a layer kind, got the end"),
        ("mamba3,", 8, "a layer kind, got the end"),
        ("2*(mamba3", 10, r"'\)', got the end"),
        ("2*(a,))", 6, r"a layer kind, got '\)'"),
        ("a b", 3, "',' or the end, got 'b'"),
        ("2(a)", 2, r"'\*', got '\('"),
        ("(a, b)", 1, r"a count or a layer kind, got '\('"),
        ("a,\n#", 4, "got '#'"),
        ("a, 0*b", 4, f"a count must be in 1..{MAX_LAYERS}, got 0"),
        ("99999999*b", 1, "a count must be in"),
        ("a, 64*(64*(2*a))", 4, f"more than {MAX_LAYERS} layers"),
    ],
)
def test_errors_name_the_column(text: str, column: int, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)column {column}: .*{message}"):
        parse_layer_pattern(text)


def test_long_texts_are_refused() -> None:
    parse_layer_pattern("1*(" * 245 + "a" + ")" * 245)
    with pytest.raises(ConfigError, match="at most 1000 characters"):
        parse_layer_pattern("1*(" * 5000 + "a" + ")" * 5000)
