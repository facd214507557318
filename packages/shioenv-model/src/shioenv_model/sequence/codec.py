"""Byte-exact tokenization of the prompts and targets of sequence models."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shioenv.errors import MissingExtraError, ModelError
from shioenv.files.regular import open_regular
from shioenv_model.sequence.compact import ERRORS, OUTPUT, PATCH, Acceptor, DocumentNames, Target

TOKENIZER = "tokenizer.json"
PAD, END = "<pad>", "</s>"

_OURS = (PAD, END, OUTPUT, ERRORS, PATCH)
_OF_T5 = (PAD, END, "<extra_id_0>", "<extra_id_1>", "<extra_id_2>")
"""The tokens that represent `_OURS` in the vocabulary of T5 and CodeT5."""

_MOST_DIGITS = 3


class Codec:
    """A byte-level vocabulary with five special tokens (marks)."""

    def __init__(self, tokenizer: Any) -> None:
        """Wrap a tokenizer. Errors: ModelError for one that is not byte-exact."""
        tokenizer.encode_special_tokens = True  # the output of programs must never become a mark
        self.tokenizer = tokenizer
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        names = next((each for each in (_OURS, _OF_T5) if {*each} <= vocabulary.keys()), None)
        alphabet = {letter: byte for byte, letter in _letters()}
        if names is None or tokenizer.normalizer is not None or len(vocabulary) > 0xFFFF:
            raise ModelError(
                "the tokenizer is not a byte-level tokenizer with the required special tokens"
            )
        self.size: int = max(vocabulary.values()) + 1
        marks = [vocabulary[name] for name in names]
        self.pad, self.end, self.output, self.errors, self.patch = marks
        self.data: list[bytes | None] = [None] * self.size
        """The bytes of each token; None for special tokens."""
        added = tokenizer.get_added_tokens_decoder()
        for token, number in vocabulary.items():
            if number not in added and all(letter in alphabet for letter in token):
                self.data[number] = bytes(alphabet[letter] for letter in token)

    @classmethod
    def read(cls, directory: Path) -> Codec:
        """Load the vocabulary in a model's directory, or in a checkpoint's.

        Errors: ModelError, MissingExtraError.
        """
        library = _tokenizers()
        file = directory / TOKENIZER
        try:
            if os.path.lexists(file):
                open_regular(file).close()
                return cls(library.Tokenizer.from_file(str(file)))
            from transformers import AutoTokenizer

            return cls(AutoTokenizer.from_pretrained(directory).backend_tokenizer)
        except ModelError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise ModelError(f"{directory} contains no valid tokenizer: {error}") from None

    @classmethod
    def learned(cls, texts: Iterable[str], size: int) -> Codec:
        """Learn a vocabulary of at most `size` tokens from texts by byte-pair encoding.

        Each digit is a separate token. The same texts give the same vocabulary.
        """
        library = _tokenizers()
        tokenizer = library.Tokenizer(library.models.BPE())
        before = library.pre_tokenizers
        tokenizer.pre_tokenizer = before.Sequence(
            [before.Digits(individual_digits=True), before.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=list(_OURS),
            initial_alphabet=before.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    def save(self, directory: Path) -> None:
        """Write the vocabulary for `read`."""
        self.tokenizer.save(str(directory / TOKENIZER))

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        numbers: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return numbers

    def encode_target(self, target: Target) -> list[int] | None:
        """Return the tokens of a target with the end token; None if the output is not UTF-8."""
        marks = {OUTPUT: self.output, ERRORS: self.errors}
        numbers = self.encode(str(target.exit_code))
        for channel, data in target.printed:
            try:
                numbers += [marks[channel], *self.encode(data.decode())]
            except UnicodeDecodeError:
                return None
        if target.patch:
            numbers += [self.patch, *self.encode(target.patch)]
        return [*numbers, self.end]

    def decode_target(self, numbers: Sequence[int]) -> Target | None:
        """Parse tokens without padding into a target; None if they are invalid."""
        writing: Writing | None = Writing(self, None)
        for number in numbers:
            writing = writing.after(number) if writing else None
        return writing.target if writing and writing.ended else None


@dataclass(frozen=True, slots=True)
class Writing:
    """A partial target, written token by token. Immutable."""

    codec: Codec
    names: DocumentNames | None
    """The document to which the patch must apply; None if the patch is not checked."""
    code: bytes = b""
    printed: tuple[tuple[str, bytes], ...] = ()
    patch: bytes | None = None
    acceptor: Acceptor | None = None
    ended: bool = False

    def after(self, token: int) -> Writing | None:
        """Return the state after one more token; None if no target begins like this."""
        codec = self.codec
        if self.ended:
            return None
        at_line_end = not self.patch or self.patch.endswith(b"\n")
        if token == codec.end:
            return replace(self, ended=True) if self._has_code and at_line_end else None
        if token in (codec.output, codec.errors, codec.patch):
            if not self._has_code or self.patch is not None:
                return None
            if token == codec.patch:
                acceptor = Acceptor(self.names) if self.names else None
                return replace(self, patch=b"", acceptor=acceptor)
            channel = OUTPUT if token == codec.output else ERRORS
            return replace(self, printed=(*self.printed, (channel, b"")))
        data = codec.data[token]
        return None if not data else self._with(data)

    def _with(self, data: bytes) -> Writing | None:
        if self.patch is not None:
            acceptor = self.acceptor.after(data) if self.acceptor else None
            if self.acceptor and acceptor is None:
                return None
            return replace(self, patch=self.patch + data, acceptor=acceptor)
        if self.printed:
            channel, text = self.printed[-1]
            return replace(self, printed=(*self.printed[:-1], (channel, text + data)))
        code = self.code + data
        fits = code.isdigit() and len(code) <= _MOST_DIGITS and str(int(code)).encode() == code
        return replace(self, code=code) if fits and int(code) <= 255 else None

    @property
    def _has_code(self) -> bool:
        return bool(self.code)

    @property
    def target(self) -> Target:
        """The written target. Errors: UnicodeDecodeError for a patch that is not UTF-8."""
        return Target(int(self.code or b"0"), self.printed, (self.patch or b"").decode())


def _letters() -> Iterator[tuple[int, str]]:
    """Yield each byte with its letter in byte-level vocabularies (GPT-2's)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    left = [byte for byte in range(256) if byte not in plain]
    yield from ((byte, chr(byte)) for byte in plain)
    yield from ((byte, chr(256 + place)) for place, byte in enumerate(left))


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError("a sequence model", "train", "tokenizers") from None
    return tokenizers
