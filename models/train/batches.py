"""Training batches: pictures, several questions about each, and what every patch shows.

One sequence holds one picture and several questions. Mostly the questions do not see each other:
each is then exactly the prompt of a single-turn chat, but the picture is encoded once. In the rest
they are the turns of one conversation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from tokenizers import Tokenizer

from questions import SYSTEM_PROMPTS, Look, Question, ask
from scene import CHARACTERS, COLORS, MODEL_SIZE, PLACES, SHAPES, SIZES, Scene
from scene import character_boxes, draw_as_found, random_label, random_shapes, to_model_pixels
from vocabulary import ASSISTANT, BOS, EOS, IMAGE, PAD, SYSTEM, USER

PATCH_SIZE = 8
GRID = MODEL_SIZE // PATCH_SIZE
NUM_PATCHES = GRID * GRID
# What the auxiliary head says about a patch; class 0 is "nothing here".
PATCH_PROPERTIES = {
    "shape": 1 + len(SHAPES),
    "color": 1 + len(COLORS),
    "size": 1 + len(SIZES),
    "character": 1 + len(CHARACTERS),
    "ordinal": 1 + 5,  # which thing in reading order, which character of the label
    "cell": 1 + len(PLACES),
}
IGNORE = -100
CONVERSATION_SHARE = 0.1
SYSTEM_SHARE = 0.12


@dataclass
class Batch:
    """`size` pictures with one sequence each; L is the longest sequence's length."""

    pixels: np.ndarray  # uint8 [size, 64, 64, 3]
    patches: np.ndarray  # int64 [size, properties, patches]
    token_ids: np.ndarray  # int64 [size, L]
    positions: np.ndarray  # int64 [size, L]
    branches: np.ndarray  # int64 [size, L]; 0: seen by all, k: seen by question k only, -1: padding
    targets: np.ndarray  # int64 [size, L]; the next token where an answer is being given, else IGNORE
    # Where to look when an answer starts, one line per question that has an opinion about it:
    look_rows: np.ndarray  # int64 [lines, 3]: row of the batch, column of the token, column of the first patch
    looks: np.ndarray  # float32 [lines, 3, 1 + patches]: share of BOS and of each patch, for `Look`'s fields
    cells: np.ndarray  # int64 [lines, 2]: 1 + the cell of `Look.one` and `.two`; 0: none, IGNORE: several
    words: np.ndarray  # int64 [lines, 2, 3]: size, color and shape in `Look.words`; 0: not mentioned


def patch_classes(scene: Scene) -> np.ndarray:
    """int64 [properties, patches]: what is at the centre of each patch."""
    classes = np.zeros((len(PATCH_PROPERTIES), GRID, GRID), dtype=np.int64)

    def mark(values: tuple[int, ...], left: float, top: float, right: float, bottom: float) -> None:
        # Patch i's centre is at (i + 0.5) / GRID.
        rows = slice(max(0, int(np.ceil(top * GRID - 0.5))), max(0, int(np.floor(bottom * GRID - 0.5)) + 1))
        columns = slice(max(0, int(np.ceil(left * GRID - 0.5))), max(0, int(np.floor(right * GRID - 0.5)) + 1))
        classes[:, rows, columns] = np.array(values)[:, None, None]

    colors = tuple(COLORS)
    for ordinal, thing in enumerate(scene.things):
        (x, y), half = thing.center, thing.half
        values = (SHAPES.index(thing.shape), colors.index(thing.color), SIZES.index(thing.size), -1, ordinal, thing.cell)
        mark(tuple(value + 1 for value in values), x - half, y - half, x + half, y + half)
    if scene.label:
        color = colors.index(scene.label.color)
        for ordinal, (character, *box) in enumerate(character_boxes(scene.label)):
            mark((0, color + 1, 0, CHARACTERS.index(character) + 1, ordinal + 1, 0), *box)
    return classes.reshape(len(PATCH_PROPERTIES), NUM_PATCHES)


def word_classes(phrase: str) -> list[int]:
    """Classes of the size, color and shape in the phrase; 0 where it has none."""
    mentioned = phrase.replace("big", "large").split()
    return [
        next((index for index, word in enumerate(known, start=1) if word in mentioned), 0)
        for known in (SIZES, tuple(COLORS), SHAPES)
    ]


def look_shares(scene: Scene, look: Look, patches: np.ndarray) -> np.ndarray:
    """float32 [3, 1 + patches]: equal shares for the things, BOS where there is none, zero for None."""
    ordinals = patches[list(PATCH_PROPERTIES).index("ordinal")]
    shares = np.zeros((3, 1 + NUM_PATCHES), dtype=np.float32)
    for line, cells in zip(shares, (look.one, look.two, look.then), strict=True):
        if cells == ():
            line[0] = 1
        for cell in cells or ():
            ordinal = next(index for index, thing in enumerate(scene.things, start=1) if thing.cell == cell)
            covered = ordinals == ordinal
            line[1:] += covered / covered.sum() / len(cells)
    return shares


class Packer:
    """Turns a scene's questions into one row of a batch."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.encode = lru_cache(maxsize=200_000)(lambda text: tuple(tokenizer.encode(text, add_special_tokens=False).ids))
        self.id = {token: tokenizer.token_to_id(token) for token in (PAD, BOS, EOS, IMAGE, USER, ASSISTANT, SYSTEM)}

    def pack(self, questions: list[Question], rng: random.Random) -> tuple:
        """Token ids, positions, branches, targets; columns where answers start; column of the first patch."""
        conversation = rng.random() < CONVERSATION_SHARE
        ids = [self.id[BOS]]
        if rng.random() < SYSTEM_SHARE:
            ids += [self.id[SYSTEM], *self.encode(rng.choice(SYSTEM_PROMPTS))]
        ids += [self.id[USER], *[self.id[IMAGE]] * NUM_PATCHES]
        prefix_length = len(ids)
        positions = list(range(prefix_length))
        branches = [0] * prefix_length
        targets = [IGNORE] * prefix_length
        starts = []
        for number, question in enumerate(questions, start=1):
            asked = [*self.encode(question.text), self.id[ASSISTANT]]
            if conversation and number > 1:
                asked.insert(0, self.id[USER])
            answered = [*self.encode(question.answer), self.id[EOS]]
            start = len(ids) if conversation else prefix_length
            length = len(asked) + len(answered)
            starts.append(len(ids) + len(asked) - 1)
            ids += asked + answered
            positions += range(start, start + length)
            branches += [0 if conversation else number] * length
            targets += [IGNORE] * (len(asked) - 1) + answered + [IGNORE]
        return ids, positions, branches, targets, starts, prefix_length - NUM_PATCHES

    def batch(self, scenes: list[Scene], num_questions: int, rng: random.Random) -> Batch:
        pixels = [np.asarray(to_model_pixels(draw_as_found(scene, rng))) for scene in scenes]
        questions = [[ask(scene, rng) for _ in range(num_questions)] for scene in scenes]
        rows = [self.pack(asked, rng) for asked in questions]
        patches = np.stack([patch_classes(scene) for scene in scenes])
        look_rows, looks, cells, words = [], [], [], []
        for index, (scene, asked, row) in enumerate(zip(scenes, questions, rows, strict=True)):
            for question, start in zip(asked, row[4], strict=True):
                if question.look:
                    look_rows.append((index, start, row[5]))
                    looks.append(look_shares(scene, question.look, patches[index]))
                    pair = (question.look.one, question.look.two)
                    cells.append([IGNORE if len(each) > 1 else sum(cell + 1 for cell in each) for each in pair])
                    words.append([word_classes(phrase) for phrase in question.look.words])
        longest = max(len(row[0]) for row in rows)
        fills = (self.id[PAD], 0, -1, IGNORE)
        columns = [
            np.array([row[field] + [fill] * (longest - len(row[field])) for row in rows], dtype=np.int64)
            for field, fill in enumerate(fills)
        ]
        return Batch(
            np.stack(pixels), patches, *columns,
            np.array(look_rows, dtype=np.int64).reshape(-1, 3),
            np.array(looks, dtype=np.float32).reshape(-1, 3, 1 + NUM_PATCHES),
            np.array(cells, dtype=np.int64).reshape(-1, 2),
            np.array(words, dtype=np.int64).reshape(-1, 2, 3),
        )  # fmt: skip


def training_batches(
    packer: Packer, seed: str, num_scenes: int, scene_questions: int, num_labels: int, label_questions: int
) -> list[Batch]:
    """One step's data: a batch of pictures of shapes and a batch of labels."""
    rng = random.Random(seed)
    return [
        packer.batch([random_shapes(rng) for _ in range(num_scenes)], scene_questions, rng),
        packer.batch([random_label(rng) for _ in range(num_labels)], label_questions, rng),
    ]
