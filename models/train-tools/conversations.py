"""Conversations with tools, drawn at random: system text, tools, questions, calls, results and answers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from marks import Marker, mark
from words import NUMBER_PARAMETERS, TEXT_PARAMETERS, VERBS, Words, invented

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant that uses tools.",
    "Answer briefly.",
    "Use the tools to answer.",
)
NO_TOOL = "I have no tool for that."
SMALL_TALK = {
    "Hello": "Hello! How can I help?",
    "Hi": "Hello! How can I help?",
    "Good morning": "Hello! How can I help?",
    "Thank you": "You are welcome.",
    "Thanks": "You are welcome.",
    "Who are you": "I am fovea-tools, a small model that calls tools.",
    "What is your name": "I am fovea-tools, a small model that calls tools.",
    "What can you do": "I can call tools and tell you their results.",
    "How are you": "I am fine, thank you.",
    "Goodbye": "Goodbye!",
}
MAX_TOOLS = 4
# What else clients write into a schema: the AI SDK and LangChain.js both, zod's converters the first.
SCHEMA_EXTRAS = (
    {"additionalProperties": False},
    {"additionalProperties": False, "$schema": "http://json-schema.org/draft-07/schema#"},
    {"$schema": "http://json-schema.org/draft-07/schema#", "additionalProperties": False},
)


@dataclass
class Parameter:
    name: str
    is_number: bool
    key: int
    description: str | None


@dataclass
class Tool:
    verb: str
    noun: str  # words joined by underscores
    parameters: list[Parameter]
    name_key: int
    noun_key: int
    description: str | None
    schema_extras: dict[str, object] = field(default_factory=dict)
    leads_with_noun: bool = False

    @property
    def name(self) -> str:
        noun = mark(self.noun_key, self.noun)
        return f"{noun}_{self.verb}" if self.leads_with_noun else f"{self.verb}_{noun}"

    @property
    def plain_name(self) -> str:
        return f"{self.noun}_{self.verb}" if self.leads_with_noun else f"{self.verb}_{self.noun}"

    @property
    def spoken_noun(self) -> str:
        return mark(self.noun_key, self.noun.replace("_", " "))

    def declaration(self) -> dict[str, object]:
        """The tool as a client sends it."""
        properties = {
            mark(parameter.key, parameter.name): {
                "type": "integer" if parameter.is_number else "string",
                **({"description": parameter.description} if parameter.description else {}),
            }
            for parameter in self.parameters
        }
        schema: dict[str, object] = {"type": "object", "properties": properties}
        if properties:
            schema["required"] = list(properties)
        return {
            "type": "function",
            "function": {
                "name": mark(self.name_key, self.name),
                **({"description": self.description} if self.description else {}),
                "parameters": schema | self.schema_extras,
            },
        }


@dataclass
class Item:
    """One call that a question asks for, and how it asks."""

    tool: Tool
    key: int
    values: list[tuple[int, str]]  # key and text per parameter
    phrase: str  # "weather of Tokyo with days 3", marked
    result: tuple[int, str]
    response: str
    fails: bool = False

    def call(self) -> dict[str, object]:
        pairs = []
        for parameter, (key, text) in zip(self.tool.parameters, self.values, strict=True):
            value = mark(key, text) if parameter.is_number else f'"{mark(key, text)}"'
            pairs.append(f'"{mark(parameter.key, parameter.name)}": {value}')
        name = mark(self.key, mark(self.tool.name_key, self.tool.plain_name))
        return {"type": "function", "function": {"name": name, "arguments": "{" + ", ".join(pairs) + "}"}}

    def answer(self) -> str:
        return f"the {self.tool.spoken_noun} is {mark(*self.result)}"


class Writer:
    """Draws the tools of a prompt and conversations about them."""

    def __init__(self, rng: random.Random, heldout: bool = False) -> None:
        self.rng, self.words, self.marker = rng, Words(rng, heldout), Marker()

    def tools(self, count: int, plain: bool = False) -> list[Tool]:
        """`plain`: without descriptions and schema extras, for the first lessons."""
        tools: list[Tool] = []
        taken: set[str] = set()
        extras = self.rng.choice(SCHEMA_EXTRAS) if self.rng.random() < 0.15 and not plain else {}
        leads_with_noun = self.rng.random() < 0.12
        while len(tools) < count:
            noun = self.words.noun()
            if taken & set(noun.split("_")):
                continue
            taken |= set(noun.split("_"))
            verb = self.rng.choice(VERBS)
            description = None
            if self.rng.random() < 0.65 and not plain:
                thing = noun.replace("_", " ")
                description = self.rng.choice(
                    (f"{verb.capitalize()} the {thing}.", f"Use this to {verb} the {thing}.",
                     f"The {thing}.", f"{verb.capitalize()} a {thing}", "Returns one value.")
                )  # fmt: skip
            tools.append(
                Tool(verb, noun, self.parameters(plain), self.marker.key("name"), self.marker.key("noun"),
                     description, extras, leads_with_noun)
            )  # fmt: skip
        return tools

    def parameters(self, plain: bool) -> list[Parameter]:
        count = self.rng.choices((0, 1, 2, 3), (4, 60, 28, 8))[0]
        names: list[str] = []
        found: list[Parameter] = []
        described = self.rng.random() < 0.35 and not plain
        while len(found) < count:
            is_number = self.rng.random() < (0.12 if not found else 0.45)
            name = self.rng.choice(NUMBER_PARAMETERS if is_number else TEXT_PARAMETERS)
            if self.rng.random() < 0.15:
                name = invented(self.rng)
            if name in names:
                continue
            names.append(name)
            description = self.rng.choice((f"The {name}.", f"The {name} to use", f"A {name}")) if described else None
            found.append(Parameter(name, is_number, self.marker.key("parameter"), description))
        return found

    def item(self, tool: Tool, that: tuple[int, str] | None = None) -> Item:
        """A call of the tool; `that`: its first argument is the result of the call before."""
        rng = self.rng
        values: list[tuple[int, str]] = []
        for parameter in tool.parameters:
            text = self.words.number_value() if parameter.is_number else self.words.text_value()
            values.append((self.marker.key("value"), text))
        if that:
            values[0] = that
        key = self.marker.key("item")
        phrase = mark(key, tool.spoken_noun)
        joiner = rng.choice((" of", " in", " for", " of"))
        named_from = 1
        if tool.parameters and not that and rng.random() < 0.15:
            named_from = 0
        elif tool.parameters:
            phrase += f"{joiner} {'that' if that else mark(*values[0])}"
        named = [
            f"{mark(parameter.key, parameter.name)} {mark(*value)}"
            for parameter, value in list(zip(tool.parameters, values, strict=True))[named_from:]
        ]
        if len(named) > 1 and rng.random() < 0.3:
            rng.shuffle(named)
        if named:
            phrase += rng.choice((" with ", " with ", ", ")) + " and ".join(named)
        result, response, fails = self.response(tool)
        return Item(tool, key, values, phrase, result, response, fails)

    def response(self, tool: Tool) -> tuple[tuple[int, str], str, bool]:
        """The result as the answer tells it, and the tool's own text."""
        rng, words = self.rng, self.words
        key, value = self.marker.key("value"), words.result_value()
        draw = rng.random()
        if draw < 0.55:
            return (key, value), mark(key, value), False
        quoted = mark(key, value) if value.isdecimal() else f'"{mark(key, value)}"'
        if draw < 0.95:
            field_name = rng.choice((tool.noun, "result", "value", "answer", "data"))
            return (key, value), f'{{"{field_name}": {quoted}}}', False
        reason = rng.choice(("not found", "no access", "try again", invented(rng)))
        return (key, reason), f'{{"error": "{mark(key, reason)}"}}', True

    def ask(self, phrases: list[str], joiner: str) -> str:
        rng = self.rng
        listed = joiner.join(phrases) if joiner != "and" else " and ".join(phrases)
        start, end = rng.choice(
            (("What is ", "?"), ("Tell me ", "."), ("Get ", "."), ("Find ", "."), ("I need ", "."), ("Please get ", "."),
             ("Show me ", "."), ("What is ", "?"), ("Can you tell me ", "?"), ("Please find ", "."))
        )  # fmt: skip
        text = start + listed + end
        if rng.random() < 0.1:
            text = text[0].lower() + text[1:]
        if rng.random() < 0.1:
            text = text[:-1]
        return text

    def small_talk(self) -> list[dict[str, object]]:
        question, answer = self.rng.choice(list(SMALL_TALK.items()))
        question += self.rng.choice(("", ".", "!", "?"))
        return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]

    def unanswerable(self, tools: list[Tool]) -> list[dict[str, object]]:
        taken = {word for tool in tools for word in tool.noun.split("_")}
        while True:
            (other,) = self.tools(1)
            if not taken & set(other.noun.split("_")):
                break
        question = self.ask([f"the {self.item(other).phrase}"], "and")
        return [{"role": "user", "content": question}, {"role": "assistant", "content": NO_TOOL}]

    def single(self, tools: list[Tool]) -> list[dict[str, object]]:
        item = self.item(self.rng.choice(tools))
        return [{"role": "user", "content": self.ask([f"the {item.phrase}"], "and")}, *self.answered([[item]])]

    def several(self, tools: list[Tool], in_order: bool) -> list[dict[str, object]]:
        """Two or three calls: one after the other, or all in one turn."""
        rng = self.rng
        count = rng.choice((2, 3, 3)) if in_order else rng.choice((2, 2, 3))
        items: list[Item] = []
        for _ in range(count):
            tool = rng.choice(tools)
            that = None
            before = items[-1] if items else None
            if in_order and before and not before.fails and rng.random() < 0.3:
                if len(tool.parameters) == 1 and tool.parameters[0].is_number == before.result[1].isdecimal():
                    that = before.result
            items.append(self.item(tool, that))
        phrases = [f"the {item.phrase}" for item in items]
        question = self.ask(phrases, rng.choice((", then ", " and then ", "; then ")) if in_order else "and")
        turns = [[item] for item in items] if in_order else [items]
        return [{"role": "user", "content": question}, *self.answered(turns)]

    def answered(self, turns: list[list[Item]]) -> list[dict[str, object]]:
        """The turns after a question: calls, results, the answer. An error ends it."""
        messages: list[dict[str, object]] = []
        for items in turns:
            messages.append({"role": "assistant", "content": "", "tool_calls": [item.call() for item in items]})
            messages += [{"role": "tool", "content": item.response} for item in items]
            failed = next((item for item in items if item.fails), None)
            if failed:
                messages.append({"role": "assistant", "content": f"The tool failed: {mark(*failed.result)}."})
                return messages
        told = [item.answer() for items in turns for item in items]
        text = ", ".join(told[:-1]) + (" and " if len(told) > 1 else "") + told[-1]
        messages.append({"role": "assistant", "content": f"T{text[1:]}."})
        return messages

    def conversation(self, tools: list[Tool], kind: str | None = None) -> tuple[str, list[dict[str, object]]]:
        """Kind and messages, without the system turn; the last is the assistant's."""
        kind = kind or self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        if not tools and kind != "small-talk":
            kind = "unanswerable"
        if kind == "small-talk":
            return kind, self.small_talk()
        if kind == "unanswerable":
            return kind, self.unanswerable(tools)
        if kind == "single":
            return kind, self.single(tools)
        return kind, self.several(tools, in_order=kind == "loop")


KINDS = {"single": 60, "parallel": 10, "loop": 18, "unanswerable": 16, "small-talk": 4}
