"""Questions about a scene, each with the one right answer.

`ask(scene, rng)` draws a question whose answer is a function of the picture and the question
alone: a thing is only referred to by words that fit nothing else on the picture, and "what is
left of ..." is only asked where at most one thing is.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from scene import COLORS, PLACES, SHAPES, SIZES, Scene, Thing

NOUNS = ("shape", "object", "thing")
PICTURE = ("picture", "image", "scene")
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "Answer briefly.",
    "You look at pictures and answer questions about them.",
    "Answer the question about the image.",
    "You are a helpful vision assistant. Be concise.",
    "Be brief and precise.",
)


Cells = tuple[int, ...]


@dataclass(frozen=True)
class Look:
    """Where to look to answer: the cells of the things that the question is about.

    `one` and `two` differ where a question compares two things; `then` is where to look next.
    Empty: there is no such thing. None: no opinion. `words` are those that the question uses for
    `one` and for `two`.
    """

    one: Cells
    two: Cells
    then: Cells | None = None
    words: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Question:
    text: str
    answer: str
    kind: str
    look: Look | None = None


# Question, answer, where to look; None where the scene offers no such question.
Found = tuple[str, str, Look | None] | None


def at(phrase: str, *things: Thing) -> Look:
    cells = tuple(thing.cell for thing in things)
    return Look(cells, cells, words=(phrase, phrase))


def words(rng: random.Random, *templates: str, **fields: str) -> str:
    picture = rng.choice(PICTURE)
    return rng.choice(templates).format(picture=picture, **fields)


def article(phrase: str) -> str:
    return f"an {phrase}" if phrase[0] in "aeiou" else f"a {phrase}"


def said(color_word: str, rng: random.Random) -> str:
    """"big" for "large" now and then; a question may use either, an answer says "large"."""
    return color_word.replace("large", "big") if rng.random() < 0.3 else color_word


@dataclass(frozen=True)
class Description:
    """Words that pick out things: any of size, colour and shape."""

    size: str | None = None
    color: str | None = None
    shape: str | None = None

    def fits(self, thing: Thing) -> bool:
        return (
            self.size in (None, thing.size)
            and self.color in (None, thing.color)
            and self.shape in (None, thing.shape)
        )

    def matches(self, scene: Scene) -> list[Thing]:
        return [thing for thing in scene.things if self.fits(thing)]

    def count(self, scene: Scene) -> int:
        return len(self.matches(scene))

    def phrase(self, noun: str) -> str:
        return " ".join(word for word in (self.size, self.color, self.shape or noun) if word)


FORMS = ("shape", "color", "color shape", "color shape", "size color shape", "size shape", "size")


def description_of(thing: Thing, form: str) -> Description:
    return Description(**{word: getattr(thing, word) for word in form.split()})


def random_description(rng: random.Random, form: str) -> Description:
    pick = {"size": SIZES, "color": tuple(COLORS), "shape": SHAPES}
    return Description(**{word: rng.choice(pick[word]) for word in form.split()})


def unique_reference(scene: Scene, thing: Thing, rng: random.Random, avoid: str = "") -> str | None:
    """"the red circle": words without the property `avoid` that fit this thing only."""
    forms = [form for form in dict.fromkeys(FORMS) if form != "size" and avoid not in form.split()]
    rng.shuffle(forms)
    for form in forms:
        description = description_of(thing, form)
        if description.count(scene) == 1:
            return said("the " + description.phrase(rng.choice(NOUNS)), rng)
    return None


def joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def describe(scene: Scene, rng: random.Random) -> Found:
    question = words(
        rng,
        "Describe the {picture}.", "Describe this {picture}.", "What is in the {picture}?",
        "What is in this {picture}?", "What do you see?", "What's in this {picture}?",
        "What do you see in the {picture}?", "What can you see in this {picture}?",
        "What does the {picture} show?", "Can you describe the {picture}?", "What is this?",
    )  # fmt: skip
    if scene.label:
        return question, f"A label that says {scene.label.text}.", None
    if not scene.things:
        return question, "An empty picture.", None
    parts = [f"a {thing.phrase} in the {thing.place}" for thing in scene.things]
    sentence = joined(parts) + "."
    return question, sentence[0].upper() + sentence[1:], None


def count(scene: Scene, rng: random.Random) -> Found:
    noun = rng.choice(NOUNS)
    if rng.random() < 0.25:
        description = Description()
    else:
        form = rng.choice(FORMS)
        if scene.things and rng.random() < 0.8:
            description = description_of(rng.choice(scene.things), form)
        else:
            description = random_description(rng, form)
    phrase = said(description.phrase(noun) + "s", rng)
    question = words(
        rng,
        "How many {phrase} are there?", "How many {phrase} are in the {picture}?",
        "How many {phrase} do you see?", "Count the {phrase}.", "How many {phrase} are there in the {picture}?",
        "How many {phrase} can you see?", "What is the number of {phrase}?", "How many {phrase}?",
        phrase=phrase,
    )  # fmt: skip
    return question, str(description.count(scene)), at(description.phrase(""), *description.matches(scene))


def exists(scene: Scene, rng: random.Random) -> Found:
    if rng.random() < 0.06:
        question = words(rng, "Is there a label?", "Is there any text in the {picture}?", "Do you see a label?")
        return question, "Yes" if scene.label else "No", None
    if rng.random() < 0.2:
        cell = rng.choice(scene.things).cell if scene.things and rng.random() < 0.4 else rng.randrange(9)
        here = [thing for thing in scene.things if thing.cell == cell]
        if scene.label:
            return None
        if here and rng.random() < 0.6 or rng.random() < 0.3:
            shape = here[0].shape if here and rng.random() < 0.6 else rng.choice(SHAPES)
            question = words(rng, "Is there a {shape} in the {place}?", shape=shape, place=PLACES[cell])
            return question, "Yes" if here and here[0].shape == shape else "No", at(shape, *here)
        question = words(rng, "Is there anything in the {place}?", "Is there something in the {place}?", place=PLACES[cell])
        return question, "Yes" if here else "No", at("", *here)
    form = rng.choice(FORMS)
    if scene.things and rng.random() < 0.5:
        description = description_of(rng.choice(scene.things), form)
    elif scene.things and rng.random() < 0.5:
        # One word off from something that is there.
        near = description_of(rng.choice(scene.things), form)
        word = rng.choice(form.split())
        description = Description(**{**vars(near), word: vars(random_description(rng, word))[word]})
    else:
        description = random_description(rng, form)
    answer = "Yes" if description.count(scene) else "No"
    look = at(description.phrase(""), *description.matches(scene))
    if form == "color" and rng.random() < 0.4:
        return words(rng, "Is there anything {color}?", "Is anything {color}?", color=description.color), answer, look
    phrase = said(description.phrase(rng.choice(NOUNS)), rng)
    question = words(
        rng,
        "Is there {one}?", "Is there {one} in the {picture}?", "Do you see {one}?", "Can you see {one}?",
        "Are there any {many}?", "Does the {picture} contain {one}?", "Is {one} in the {picture}?",
        "Does the {picture} have {one}?", one=article(phrase), many=phrase + "s",
    )  # fmt: skip
    return question, answer, look


def where(scene: Scene, rng: random.Random) -> Found:
    if not scene.things:
        return None
    thing = rng.choice(scene.things)
    name = unique_reference(scene, thing, rng)
    question = name and words(
        rng, "Where is {name}?", "Where's {name}?", "Where is {name} in the {picture}?",
        "In which part of the {picture} is {name}?", "Where do you see {name}?", name=name,
    )  # fmt: skip
    return name and (question, f"In the {thing.place}", at(name, thing))


def what_is_at(scene: Scene, rng: random.Random) -> Found:
    if scene.label:
        return None
    cell = rng.choice(scene.things).cell if scene.things and rng.random() < 0.75 else rng.randrange(9)
    here = [thing for thing in scene.things if thing.cell == cell]
    place = PLACES[cell]
    if place == "center" and rng.random() < 0.3:
        place = "middle"
    place = place.replace("center", "centre") if rng.random() < 0.2 else place
    question = words(
        rng, "What is in the {place}?", "What's in the {place}?", "What do you see in the {place}?",
        "What is in the {place} of the {picture}?", "What is at the {place}?", "Which object is in the {place}?",
        "What shape is in the {place}?", "What color is the object in the {place}?", place=place,
    )  # fmt: skip
    if not here:
        return question, "Nothing", at("")
    if "What shape" in question:
        return question, here[0].shape.capitalize(), at("", *here)
    if "What color" in question:
        return question, here[0].color.capitalize(), at("", *here)
    return question, f"A {here[0].phrase}", at("", *here)


def color(scene: Scene, rng: random.Random) -> Found:
    word = rng.choice(("color", "color", "colour"))
    if scene.label:
        name = rng.choice(("the label", "the text", "the print", "the writing"))
        answer, look = scene.label.color, None
    else:
        if not scene.things:
            return None
        thing = rng.choice(scene.things)
        name = unique_reference(scene, thing, rng, avoid="color")
        answer = thing.color
        if not name and len(scene.things) == 1:
            name = f"the {rng.choice(NOUNS)}"
        look = at(name or "", thing)
    question = name and words(
        rng, "What {word} is {name}?", "What is the {word} of {name}?", "Which {word} is {name}?",
        "Which {word} does {name} have?", word=word, name=name,
    )  # fmt: skip
    return name and (question, answer.capitalize(), look)


def shape(scene: Scene, rng: random.Random) -> Found:
    if not scene.things:
        return None
    thing = rng.choice(scene.things)
    name = unique_reference(scene, thing, rng, avoid="shape")
    if not name and len(scene.things) == 1:
        name = "the object"
    if not name or "shape" in name:
        name = name and name.replace("shape", rng.choice(("object", "thing")))
    question = name and words(
        rng, "What shape is {name}?", "What is the shape of {name}?", "Which shape is {name}?",
        "What is {name}?", name=name,
    )  # fmt: skip
    return name and (question, thing.shape.capitalize(), at(name, thing))


def size(scene: Scene, rng: random.Random) -> Found:
    if not scene.things:
        return None
    thing = rng.choice(scene.things)
    name = unique_reference(scene, thing, rng, avoid="size")
    question = name and words(
        rng, "How big is {name}?", "What size is {name}?", "Is {name} large or small?", "Is {name} small or large?",
        "How large is {name}?", name=name,
    )  # fmt: skip
    return name and (question, thing.size.capitalize(), at(name, thing))


# Side: does `other` lie on that side of `thing`?
SIDES: dict[str, Callable[[Thing, Thing], bool]] = {
    "left of": lambda other, thing: other.column < thing.column,
    "right of": lambda other, thing: other.column > thing.column,
    "above": lambda other, thing: other.row < thing.row,
    "below": lambda other, thing: other.row > thing.row,
}


def side_words(side: str, rng: random.Random) -> str:
    return f"to the {side}" if side.endswith("of") and rng.random() < 0.5 else side


def beside(scene: Scene, rng: random.Random) -> Found:
    if not scene.things:
        return None
    sides = list(SIDES)
    rng.shuffle(sides)
    for side in sides:
        thing = rng.choice(scene.things)
        others = [other for other in scene.things if SIDES[side](other, thing)]
        name = unique_reference(scene, thing, rng)
        if not name or len(others) > 1 or (not others and rng.random() < 0.7):
            continue
        question = words(
            rng, "What is {side} {name}?", "What's {side} {name}?", "What do you see {side} {name}?",
            "Which object is {side} {name}?", side=side_words(side, rng), name=name,
        )  # fmt: skip
        look = Look((thing.cell,), (thing.cell,), tuple(other.cell for other in others), (name, name))
        return question, f"A {others[0].phrase}" if others else "Nothing", look
    return None


def compare(scene: Scene, rng: random.Random) -> Found:
    if len(scene.things) < 2:
        return None
    one, two = rng.sample(scene.things, 2)
    first = unique_reference(scene, one, rng)
    second = unique_reference(scene, two, rng)
    side = rng.choice(list(SIDES))
    opposite = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}[side]
    holds, reverse = SIDES[side](one, two), SIDES[opposite](one, two)
    if not first or not second or not (holds or reverse):
        return None
    look = Look((one.cell,), (two.cell,), words=(first, second))
    return f"Is {first} {side_words(side, rng)} {second}?", "Yes" if holds else "No", look


def read(scene: Scene, rng: random.Random) -> Found:
    question = words(
        rng,
        "What does the label say?", "What does the sign say?", "Read the label.", "What is written on the label?",
        "What text is in the {picture}?", "What is written in the {picture}?", "Read the text.", "What does it say?",
        "What does the text say?", "What is printed on the label?", "What is the text in this {picture}?",
        "What is written here?", "What text do you see?", "Please read the label.",
    )  # fmt: skip
    return question, scene.label.text if scene.label else "There is no label", None


# Weights: how often each kind is tried.
SCENE_KINDS: dict[str, tuple[Callable[[Scene, random.Random], Found], float]] = {
    "describe": (describe, 0.8),
    "count": (count, 2.2),
    "exists": (exists, 2.0),
    "where": (where, 2.0),
    "what-is-at": (what_is_at, 1.2),
    "color": (color, 1.2),
    "shape": (shape, 1.0),
    "size": (size, 1.0),
    "beside": (beside, 2.0),
    "compare": (compare, 4.0),
    "read": (read, 0.15),
}
LABEL_KINDS = {
    "read": (read, 6.0),
    "describe": (describe, 1.5),
    "color": (color, 1.0),
    "exists": (exists, 0.4),
    "count": (count, 0.2),
}


def restyled(text: str, rng: random.Random) -> str:
    """The ways people type: lower case, no punctuation, a please, an instruction at the end."""
    if rng.random() < 0.05:
        text = f"Please {text[0].lower()}{text[1:]}" if text.endswith(".") and not text.startswith("Please") else text
    if rng.random() < 0.12:
        text = text[0].lower() + text[1:]
    draw = rng.random()
    if draw < 0.08:
        text = text.rstrip("?.")
    elif draw < 0.12:
        text += rng.choice((" Answer briefly.", " Answer in one word.", " Be brief.", " Answer with a short phrase."))
    return text


def ask(scene: Scene, rng: random.Random, kind: str | None = None) -> Question:
    kinds = LABEL_KINDS if scene.label else SCENE_KINDS
    while True:
        chosen = kind or rng.choices(list(kinds), [weight for _, weight in kinds.values()])[0]
        found = kinds[chosen][0](scene, rng)
        if found:
            return Question(restyled(found[0], rng), found[1], chosen, found[2])
        kind = None
