"""Random pictures: what is on them, and how they are drawn.

A `Scene` is either up to four coloured shapes on a 3 x 3 grid or one printed label. All
coordinates are fractions of the picture's central square. The same scene can be drawn at any
size; `to_model_pixels` then does what the checkpoint's image processor does, so that the model
sees in training what a picture of any size becomes when it is served.
"""

from __future__ import annotations

import io
import math
import random
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

MODEL_SIZE = 64  # pixels, both sides

SHAPES = ("circle", "square", "triangle", "star")
SIZES = ("small", "large")
# Several anchors per name: people draw "green" as (0, 255, 0) and as (0, 128, 0).
COLORS = {
    "red": ((220, 40, 40), (255, 0, 0), (200, 20, 30)),
    "orange": ((245, 140, 20), (255, 165, 0), (240, 125, 30)),
    "yellow": ((240, 215, 30), (255, 255, 0), (250, 220, 60)),
    "green": ((40, 160, 60), (0, 128, 0), (0, 230, 30)),
    "blue": ((40, 80, 210), (0, 0, 255), (60, 110, 235)),
    "purple": ((140, 50, 170), (128, 0, 128), (150, 70, 200)),
    "black": ((30, 30, 30), (0, 0, 0), (20, 20, 25)),
}
LABEL_COLORS = ("black", "black", "black", "red", "blue", "green", "purple")
PLACES = (
    "top left", "top middle", "top right",
    "middle left", "center", "middle right",
    "bottom left", "bottom middle", "bottom right",
)  # fmt: skip

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
# Where letters and digits are mixed, O/0 and I/1 cannot be told apart; they are left out there.
PLAIN_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
PLAIN_DIGITS = "23456789"
CHARACTERS = LETTERS + DIGITS
FONTS = ("DejaVuSans-Bold.ttf", "DejaVuSans.ttf", "DejaVuSansMono-Bold.ttf")


@dataclass(frozen=True)
class Thing:
    """One shape in one of the nine cells; `half` is half its extent, as a fraction of the side."""

    shape: str
    color: str
    size: str
    cell: int  # row * 3 + column
    center: tuple[float, float]
    half: float
    rgb: tuple[int, int, int]

    @property
    def row(self) -> int:
        return self.cell // 3

    @property
    def column(self) -> int:
        return self.cell % 3

    @property
    def place(self) -> str:
        return PLACES[self.cell]

    @property
    def phrase(self) -> str:
        return f"{self.size} {self.color} {self.shape}"


@dataclass(frozen=True)
class Label:
    """One line of print; `width` is its fraction of the side, `center` that of the line."""

    text: str
    color: str
    rgb: tuple[int, int, int]
    font: str
    width: float
    center: tuple[float, float]
    plate: tuple[int, int, int] | None  # fill of the sign behind the print, if there is one


@dataclass(frozen=True)
class Scene:
    """`things` is in reading order; a scene has things or a label, never both."""

    background: tuple[int, int, int]
    things: tuple[Thing, ...] = ()
    label: Label | None = None


def random_rgb(color: str, rng: random.Random) -> tuple[int, int, int]:
    anchor = rng.choice(COLORS[color])
    return tuple(min(255, max(0, channel + rng.randint(-12, 12))) for channel in anchor)


def random_background(rng: random.Random) -> tuple[int, int, int]:
    if rng.random() < 0.4:
        return (255, 255, 255)
    return tuple(rng.randint(226, 255) for _ in range(3))


def random_thing(cell: int, rng: random.Random) -> Thing:
    size = rng.choice(SIZES)
    half = rng.uniform(0.125, 0.152) if size == "large" else rng.uniform(0.072, 0.09)
    slack = 1 / 6 - half - 0.008
    center = (
        (cell % 3 + 0.5) / 3 + rng.uniform(-1, 1) * min(slack, 0.04),
        (cell // 3 + 0.5) / 3 + rng.uniform(-1, 1) * min(slack, 0.04),
    )
    color = rng.choice(tuple(COLORS))
    return Thing(rng.choice(SHAPES), color, size, cell, center, half, random_rgb(color, rng))


def random_shapes(rng: random.Random) -> Scene:
    num_things = rng.choices(range(5), weights=(2, 15, 23, 30, 30))[0]
    cells = sorted(rng.sample(range(9), num_things))
    things = [random_thing(cell, rng) for cell in cells]
    # Look-alikes make counting and "which one" questions worth asking.
    if num_things > 1 and rng.random() < 0.4:
        source, target = rng.sample(range(num_things), 2)
        twin = things[source]
        other = things[target]
        shape = twin.shape if rng.random() < 0.7 else other.shape
        color = twin.color if rng.random() < 0.7 else other.color
        things[target] = Thing(
            shape, color, other.size, other.cell, other.center, other.half, random_rgb(color, rng)
        )
    return Scene(random_background(rng), tuple(things))


def random_text(rng: random.Random) -> str:
    length = rng.randint(3, 5)
    style = rng.random()
    if style < 0.5:
        return "".join(rng.choice(LETTERS) for _ in range(length))
    if style < 0.7:
        return "".join(rng.choice(DIGITS) for _ in range(length))
    num_letters = rng.randint(1, length - 1)
    head = "".join(rng.choice(PLAIN_LETTERS) for _ in range(num_letters))
    return head + "".join(rng.choice(PLAIN_DIGITS) for _ in range(length - num_letters))


def random_label(rng: random.Random) -> Scene:
    color = rng.choice(LABEL_COLORS)
    text = random_text(rng)
    width = rng.uniform(0.62, 0.8) if len(text) == 3 else rng.uniform(0.76, 0.92)
    center = (0.5 + rng.uniform(-1, 1) * (0.95 - width) / 2, rng.uniform(0.36, 0.64))
    plate = (255, 255, 255) if rng.random() < 0.5 else None
    if plate and rng.random() < 0.3:
        plate = (250, 240, 200)
    label = Label(text, color, random_rgb(color, rng), rng.choice(FONTS), width, center, plate)
    return Scene(random_background(rng), label=label)


def outline(thing: Thing) -> list[tuple[float, float]]:
    """Corners of a triangle or star, as fractions of the side."""
    x, y = thing.center
    if thing.shape == "triangle":
        return [(x, y - thing.half), (x + thing.half, y + thing.half), (x - thing.half, y + thing.half)]
    points = []
    for corner in range(10):
        radius = thing.half * (1.1 if corner % 2 == 0 else 0.45)
        angle = math.pi * (corner / 5 - 0.5)
        points.append((x + radius * math.cos(angle), y + radius * math.sin(angle)))
    return points


@lru_cache(maxsize=512)
def font_at(name: str, pixels: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(name, pixels)


def label_geometry(label: Label, side: float) -> tuple[ImageFont.FreeTypeFont, float, float, float]:
    """Font and box of the print in pixels: font, left, top of the capitals, their height."""
    probe = font_at(label.font, 200)
    pixels = max(6, round(200 * label.width * side / probe.getlength(label.text)))
    font = font_at(label.font, pixels)
    _, top, _, bottom = font.getbbox("H")
    height = bottom - top
    left = label.center[0] * side - font.getlength(label.text) / 2
    return font, left, label.center[1] * side - height / 2, height


def character_boxes(label: Label) -> list[tuple[str, float, float, float, float]]:
    """(character, left, top, right, bottom), fractions of the side."""
    side = 1000.0
    font, left, top, height = label_geometry(label, side)
    boxes = []
    for index, character in enumerate(label.text):
        start = left + font.getlength(label.text[:index])
        end = left + font.getlength(label.text[: index + 1])
        boxes.append((character, start / side, top / side, end / side, (top + height) / side))
    return boxes


def draw(scene: Scene, side: int, stretch: float = 1.0, wide: bool = True) -> Image.Image:
    """The scene in the central square of a picture whose shorter side is `side` pixels.

    `stretch` is the longer side over the shorter one. Drawn larger and averaged down, because
    PIL's shapes have hard edges.
    """
    oversampling = 4 if side <= 128 else 2
    square = side * oversampling
    longer = round(side * stretch) * oversampling
    width, height = (longer, square) if wide else (square, longer)
    dx, dy = (width - square) / 2, (height - square) / 2
    image = Image.new("RGB", (width, height), scene.background)
    canvas = ImageDraw.Draw(image)

    def scaled(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        return [(dx + x * square, dy + y * square) for x, y in points]

    for thing in scene.things:
        x, y = thing.center
        box = scaled([(x - thing.half, y - thing.half), (x + thing.half, y + thing.half)])
        if thing.shape == "circle":
            canvas.ellipse(box, fill=thing.rgb)
        elif thing.shape == "square":
            inset = thing.half * 0.06 * square
            (left, top), (right, bottom) = box
            canvas.rectangle([left + inset, top + inset, right - inset, bottom - inset], fill=thing.rgb)
        else:
            canvas.polygon(scaled(outline(thing)), fill=thing.rgb)
    if scene.label:
        label = scene.label
        font, left, top, height = label_geometry(label, square)
        if label.plate:
            right = left + font.getlength(label.text)
            border = max(1, square // 64)
            pad = 0.03 * square
            canvas.rounded_rectangle(
                [dx + left - pad, dy + top - 3 * pad, dx + right + pad, dy + top + height + 3 * pad],
                radius=pad, fill=label.plate, outline=(90, 90, 90), width=border,
            )  # fmt: skip
        canvas.text((dx + left, dy + top + height), label.text, font=font, fill=label.rgb, anchor="ls")
    return image.reduce(oversampling)


def random_side(rng: random.Random) -> int:
    low, high = rng.choices(((64, 128), (128, 256), (256, 512)), weights=(55, 30, 15))[0]
    return rng.randint(low, high)


def draw_as_found(scene: Scene, rng: random.Random) -> Image.Image:
    """The scene at a random size; some pictures are not square, some went through JPEG."""
    stretch = rng.uniform(1.0, 1.4) if rng.random() < 0.15 else 1.0
    image = draw(scene, random_side(rng), stretch, wide=rng.random() < 0.5)
    if rng.random() < 0.1:
        encoded = io.BytesIO()
        image.save(encoded, "JPEG", quality=rng.randint(75, 95))
        image = Image.open(encoded).convert("RGB")
    return image


def to_model_pixels(image: Image.Image) -> Image.Image:
    """Shorter edge to 64 (bicubic), centre crop 64 x 64: the image processor's geometry."""
    width, height = image.size
    short, long = min(width, height), max(width, height)
    scaled_long = int(MODEL_SIZE * long / short)
    size = (MODEL_SIZE, scaled_long) if width <= height else (scaled_long, MODEL_SIZE)
    image = image.resize(size, Image.Resampling.BICUBIC)
    left, top = (size[0] - MODEL_SIZE) // 2, (size[1] - MODEL_SIZE) // 2
    return image.crop((left, top, left + MODEL_SIZE, top + MODEL_SIZE))
