"""Training batches: a prompt's tools once, several conversations about them behind.

The conversations of a row do not see each other: each is exactly the prompt of a chat of its own,
but the tools are encoded once.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerFast

import words
from conversations import MAX_TOOLS, SYSTEM_PROMPTS, Writer
from marks import Span, strip_marks
from vocabulary import END, PAD, START

IGNORE = -100
ROW_LENGTH = 448
ANSWERS = re.compile(re.escape(f"{START}assistant\n") + "(.*?" + re.escape(END) + ")", re.DOTALL)
# What the attention of one head each is taught; see `TAUGHT_HEADS` in model.py.
MATCH, SELECT, COPY = range(3)


@dataclass
class Batch:
    """`size` rows of L = `ROW_LENGTH` tokens."""

    token_ids: np.ndarray  # int64 [size, L]
    positions: np.ndarray  # int64 [size, L]
    branches: np.ndarray  # int64 [size, L]; 0: seen by all, k: seen by conversation k only, -1: padding
    targets: np.ndarray  # int64 [size, L]; the next token of the same conversation, else IGNORE
    answers: np.ndarray  # bool [size, L]; where the next token is the assistant's
    looks: np.ndarray  # int64 [lines, 3]: MATCH, SELECT or COPY; row; column
    sources: np.ndarray  # int64 [pairs, 2]: line of `looks`; a column that its attention should go to


def turn_start(piece: Piece, index: int) -> int:
    """Where the first token of the assistant's turn is decided that has the token, or comes after it."""
    if piece.is_answer[index]:
        while piece.is_answer[index]:
            index -= 1
        return index
    while not piece.is_answer[index + 1]:
        index += 1
    return index


@dataclass
class Piece:
    """A tokenized part of a prompt: token ids, which of them are the assistant's, and the marked parts."""

    ids: list[int]
    is_answer: list[bool]
    spans: list[tuple[int, int, int]]  # key, first token, end


class Packer:
    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.pad = tokenizer.convert_tokens_to_ids(PAD)
        tokens = [token for token in tokenizer.get_vocab() if token.isascii() and token.isalpha()]
        words.pieces[:] = sorted(token for token in tokens if token.islower())

    def piece(self, text: str, spans: list[Span]) -> Piece:
        encoding = self.tokenizer._tokenizer.encode(text, add_special_tokens=False)
        token_at = [0] * (len(text) + 1)
        for index, (start, end) in enumerate(encoding.offsets):
            token_at[start:end] = [index] * (end - start)
        token_at[len(text)] = len(encoding.ids)
        is_answer = [False] * len(encoding.ids)
        for match in ANSWERS.finditer(text):
            first, end = token_at[match.start(1)], token_at[match.end(1) - 1] + 1
            is_answer[first:end] = [True] * (end - first)
        found = [(span.key, token_at[span.start], token_at[span.end - 1] + 1) for span in spans]
        return Piece(encoding.ids, is_answer, found)

    def row(self, rng: random.Random, max_tools: int, plain: bool) -> tuple:
        writer = Writer(rng)
        count = 0 if rng.random() < 0.03 else rng.randint(1, max_tools)
        tools = writer.tools(count, plain)
        declared = [tool.declaration() for tool in tools] or None
        system = [{"role": "system", "content": rng.choice(SYSTEM_PROMPTS)}] if rng.random() < 0.15 else []
        prefix: Piece | None = None
        ids, positions, branches, targets, answers = [], [], [], [], []
        looks: list[tuple[int, int, list[int]]] = []
        branch = 0
        while True:
            _, messages = writer.conversation(tools)
            if tools and rng.random() < 0.12 and len(messages) <= 4:
                messages += writer.conversation(tools)[1]
            rendered = self.tokenizer.apply_chat_template([*system, *messages], tools=declared, tokenize=False)
            text, spans = strip_marks(rendered)
            cut = text.index(f"{START}user")
            if prefix is None:
                prefix = self.piece(text[:cut], [span for span in spans if span.end <= cut])
                ids += prefix.ids
                positions += range(len(ids))
                branches += [0] * len(ids)
                targets += [*prefix.ids[1:], IGNORE] if ids else []
                answers += [False] * len(ids)
            behind = [Span(span.key, span.start - cut, span.end - cut) for span in spans if span.start >= cut]
            piece = self.piece(text[cut:], behind)
            if len(ids) + len(piece.ids) > ROW_LENGTH and branch:
                break
            branch += 1
            looks += self.looks(writer.marker.kinds, prefix, piece, len(ids))
            positions += range(len(prefix.ids), len(prefix.ids) + len(piece.ids))
            branches += [branch] * len(piece.ids)
            targets += [*piece.ids[1:], IGNORE]
            answers += [*piece.is_answer[1:], False]
            ids += piece.ids
        return ids, positions, branches, targets, answers, looks

    def looks(self, kinds: list[str], prefix: Piece, piece: Piece, offset: int) -> list[tuple[int, int, list[int]]]:
        """What to teach (MATCH, SELECT, COPY), the column and the columns to look at."""
        looks = []
        sources: dict[int, list[tuple[int, int]]] = {}  # key -> columns and token ids
        for key, first, end in prefix.spans:
            sources.setdefault(key, []).extend((column, prefix.ids[column]) for column in range(first, end))
        unknown = {first for key, first, _ in piece.spans if kinds[key] == "noun" and key not in sources}
        for key, first, end in sorted(piece.spans, key=lambda span: span[1]):
            kind, is_copy = kinds[key], piece.is_answer[first]
            known = sources.setdefault(key, [])
            if kind == "item":
                if is_copy:
                    asked = [column for column, _ in known]
                    looks.append((SELECT, offset + first - 1, asked))
                    start = turn_start(piece, first)
                    if (SELECT, start) not in {(what, column - offset) for what, column, _ in looks}:
                        looks.append((SELECT, offset + start, asked))
                elif first in unknown:
                    # No tool fits, which the noun knows that finds none.
                    looks.append((SELECT, offset + turn_start(piece, first), [*range(offset + first, offset + end)]))
            elif is_copy or kind == "noun":
                for index in range(first, end):
                    same = [column for column, token in known if token == piece.ids[index]]
                    if is_copy and index > first:
                        before = piece.ids[index - 1]
                        after = [c for c in same if any(column == c - 1 and token == before for column, token in known)]
                        same = after or same
                    if same:
                        looks.append((COPY, offset + index - 1, same) if is_copy else (MATCH, offset + index, same))
            if not is_copy:
                known += [(offset + index, piece.ids[index]) for index in range(first, end)]
        return looks

    def batch(self, rng: random.Random, size: int, max_tools: int = MAX_TOOLS, plain: bool = False) -> Batch:
        rows = [self.row(rng, max_tools, plain) for _ in range(size)]
        length = ROW_LENGTH  # always: kernels are compiled for each shape
        fills = (self.pad, 0, -1, IGNORE, False)
        columns = [
            np.array([(row[field] + [fill] * (length - len(row[field])))[:length] for row in rows])
            for field, fill in enumerate(fills)
        ]
        looks, sources = [], []
        for index, row in enumerate(rows):
            for what, column, wanted in row[5]:
                if column < length:
                    sources += [(len(looks), source) for source in wanted]
                    looks.append((what, index, column))
        return Batch(*columns, np.array(looks).reshape(-1, 3), np.array(sources).reshape(-1, 2))
