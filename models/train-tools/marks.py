"""Marks in text: which part of an answer is a copy, and of what.

A marked part is enclosed in private-use characters, which survive the chat template and JSON.
`strip_marks` removes them and says where the parts are. Training uses that to teach attention
where to look; the model never sees a mark.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_OPEN, CLOSE = 0xE000, "\uf8ff"
MAX_KEYS = 0x1800


@dataclass(frozen=True)
class Span:
    """Characters [start, end) of the text without marks. Parts with the same key have the same text or noun."""

    key: int
    start: int
    end: int


class Marker:
    """Gives out keys; `kinds[key]` is what the key stands for: "name", "noun", "parameter", "value" or "item" (a call)."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def key(self, kind: str) -> int:
        self.kinds.append(kind)
        return len(self.kinds) - 1


def mark(key: int, text: str) -> str:
    assert key < MAX_KEYS
    return f"{chr(FIRST_OPEN + key)}{text}{CLOSE}"


def strip_marks(text: str) -> tuple[str, list[Span]]:
    plain: list[str] = []
    spans: list[Span] = []
    opened: list[tuple[int, int]] = []
    for character in text:
        if character == CLOSE:
            key, start = opened.pop()
            spans.append(Span(key, start, len(plain)))
        elif FIRST_OPEN <= ord(character) < FIRST_OPEN + MAX_KEYS:
            opened.append((ord(character) - FIRST_OPEN, len(plain)))
        else:
            plain.append(character)
    return "".join(plain), spans
