"""`trainc sample`: let a trained model continue a text."""

from typing import TYPE_CHECKING, Annotated

import typer

from trainc.cli import options, output
from trainc.cli.progress import Reporter
from trainc.core.errors import UsageError

if TYPE_CHECKING:
    from trainc.runtime.decode import Decoder

Prompt = Annotated[
    str, typer.Option("--prompt", metavar="TEXT", help="The text to continue, read as UTF-8.", show_default=False)
]
MaxTokens = Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="The most new tokens.")]
Temperature = Annotated[
    float, typer.Option("--temperature", metavar="T", help="Above 1 is bolder; 0 always takes the likeliest token.")
]
TopK = Annotated[int | None, typer.Option("--top-k", metavar="K", help="Choose among the K likeliest tokens only.")]
TopP = Annotated[
    float, typer.Option("--top-p", metavar="P", help="Choose among the likeliest tokens that together reach P.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="S", help="Another seed, another text.")]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text; can be given several times."),
]


def sample_command(
    artifact: options.Artifact,
    weights: options.Weights,
    prompt: Prompt,
    max_tokens: MaxTokens = 200,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    stop: Stop = None,
    device: options.Device = None,
    no_verify: options.NoVerify = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Let a trained model continue a text.

    Only the continuation is printed.
    """
    from trainc.cli.loading import Model, load_weights
    from trainc.runtime.decode import Decoder, generate
    from trainc.runtime.sampling import SamplingOptions

    sampling = SamplingOptions(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=tuple(text.encode(errors="surrogateescape") for text in stop or ()),
    )
    with Reporter(quiet) as reporter:
        program = Model.open(artifact).verified_program(device, reporter, no_verify)
    decoder = Decoder(program, load_weights(program, weights))
    samples = generate(decoder, encode(prompt, decoder), max_tokens, sampling)
    if not as_json:
        output.emit_raw(b"\n---\n".join(decode(sample.tokens) for sample in samples) + b"\n")
        return
    rows = [
        {"text": decode(sample.tokens).decode(errors="replace"), "tokens": sample.tokens, "end": sample.finish_reason}
        for sample in samples
    ]
    output.emit_json({"prompt": prompt, "samples": rows})


def encode(text: str, decoder: "Decoder") -> list[int]:
    """The tokens of a text: its bytes.

    Raises:
        UsageError: The text is empty, or has a byte outside the model's vocabulary.
    """
    tokens = list(text.encode(errors="surrogateescape"))
    if not tokens:
        raise UsageError("--prompt must have at least one character, got none")
    for position, token in enumerate(tokens):
        if token >= decoder.vocab:
            raise UsageError(
                f"--prompt has byte {token} at {position}, outside the model's vocabulary of {decoder.vocab}"
            )
    return tokens


def decode(tokens: list[int]) -> bytes:
    """The bytes of tokens; a token above 255, which no byte stands for, becomes a question mark."""
    return bytes(token if token < 256 else ord("?") for token in tokens)
