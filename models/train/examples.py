"""Draws the sample pictures of the documentation, with questions and the right answers.

    python examples.py && python evaluate.py --set ../fovea-shapes/examples
"""

from __future__ import annotations

import json

from scene import Label, Scene, Thing, draw
from train import CHECKPOINT_FOLDER

SCENE = Scene(
    (255, 255, 255),
    (
        Thing("circle", "red", "large", 0, (0.17, 0.18), 0.14, (220, 40, 40)),
        Thing("star", "yellow", "small", 2, (0.83, 0.16), 0.088, (240, 215, 30)),
        Thing("square", "blue", "large", 4, (0.5, 0.5), 0.14, (40, 80, 210)),
        Thing("triangle", "green", "large", 8, (0.82, 0.82), 0.145, (40, 160, 60)),
    ),
)
MORE = Scene(
    (240, 244, 250),
    (
        Thing("circle", "purple", "small", 1, (0.5, 0.17), 0.08, (140, 50, 170)),
        Thing("circle", "orange", "large", 3, (0.18, 0.5), 0.14, (245, 140, 20)),
        Thing("circle", "orange", "small", 7, (0.5, 0.82), 0.08, (245, 140, 20)),
    ),
)
LABEL = Scene(
    (232, 240, 250),
    label=Label("FOVEA", "black", (20, 20, 25), "DejaVuSans-Bold.ttf", 0.84, (0.5, 0.5), (255, 255, 255)),
)
PICTURES = {
    "scene.png": (draw(SCENE, 320), (
        ("Describe the picture.", "A large red circle in the top left, a small yellow star in the top right, "
         "a large blue square in the center and a large green triangle in the bottom right."),
        ("How many shapes are there?", "4"),
        ("What is in the center?", "A large blue square"),
        ("Where is the triangle?", "In the bottom right"),
        ("What color is the star?", "Yellow"),
        ("Is there a red circle?", "Yes"),
        ("Is there a green circle?", "No"),
        ("What is left of the blue square?", "A large red circle"),
    )),
    "circles.png": (draw(MORE, 256, stretch=1.25), (
        ("How many circles are there?", "3"),
        ("How many orange circles are there?", "2"),
        ("How many squares are there?", "0"),
        ("How big is the purple circle?", "Small"),
        ("What is in the top left?", "Nothing"),
    )),
    "label.png": (draw(LABEL, 320), (
        ("What does the label say?", "FOVEA"),
        ("What is in this picture?", "A label that says FOVEA."),
        ("What color is the text?", "Black"),
    )),
}  # fmt: skip


def main() -> None:
    folder = CHECKPOINT_FOLDER / "examples"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, (image, questions) in PICTURES.items():
        image.save(folder / name, optimize=True)
        lines += [{"image": name, "question": question, "answer": answer, "kind": name} for question, answer in questions]
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
