"""Writes the held-out set: pictures and questions from random streams that training never uses.

    python heldout.py

`models/fovea-shapes/heldout/questions.jsonl` has one line per question. Every question kind is
asked, the kinds of a picture drawn in turn so that each gets a fair number.
"""

from __future__ import annotations

import json
import random

from questions import LABEL_KINDS, SCENE_KINDS, ask
from scene import draw_as_found, random_label, random_shapes
from train import CHECKPOINT_FOLDER

SEED = "heldout-1"
NUM_SCENES, NUM_LABELS = 140, 60
QUESTIONS_PER_SCENE, QUESTIONS_PER_LABEL = 5, 3


def main() -> None:
    rng = random.Random(SEED)
    folder = CHECKPOINT_FOLDER / "heldout"
    folder.mkdir(parents=True, exist_ok=True)
    scene_kinds = [kind for kind in SCENE_KINDS if kind != "read"]
    lines = []
    for number in range(1, NUM_SCENES + NUM_LABELS + 1):
        is_label = number > NUM_SCENES
        scene = random_label(rng) if is_label else random_shapes(rng)
        name = f"{number:04}.png"
        draw_as_found(scene, rng).save(folder / name, optimize=True)
        seen: set[str] = set()
        count = QUESTIONS_PER_LABEL if is_label else QUESTIONS_PER_SCENE
        for turn in range(count):
            if is_label:
                kind = "read" if turn == 0 else rng.choice(list(LABEL_KINDS))
            else:
                kind = scene_kinds[(number * count + turn) % len(scene_kinds)]
            question = ask(scene, rng, kind)
            if question.text in seen:
                continue
            seen.add(question.text)
            lines.append({"image": name, "question": question.text, "answer": question.answer, "kind": question.kind})
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{NUM_SCENES + NUM_LABELS} pictures, {len(lines)} questions")


if __name__ == "__main__":
    main()
