"""Writes the held-out set: conversations from random streams that training never uses, in two halves.

    python heldout.py

"new-words"   tools, arguments and results have real words that never occur in training, or other
              invented ones. No name of these tools was ever seen.
"known-words" tools named with words of training, in questions that were never asked.

`models/fovea-tools/heldout/conversations.jsonl` has one conversation per line: OpenAI's messages
and tools. The assistant's turns are the right answers. `rendered.json` has the text of some of them
by line (from 0), as transformers renders the chat template.
"""

from __future__ import annotations

import json
import random

from conversations import KINDS, MAX_TOOLS, SYSTEM_PROMPTS, Writer
from marks import strip_marks
from train import CHECKPOINT_FOLDER
from vocabulary import load_tokenizer

SEED = "heldout-1"
NUM_OF_KIND = {"single": 60, "parallel": 20, "loop": 30, "unanswerable": 20, "small-talk": 5}
RENDERED_EVERY = 10
HALVES = {"new-words": True, "known-words": False}


def plain(value: object) -> object:
    """The same JSON without marks."""
    return json.loads(strip_marks(json.dumps(value, ensure_ascii=False))[0])


def main() -> None:
    assert NUM_OF_KIND.keys() == KINDS.keys()
    folder = CHECKPOINT_FOLDER / "heldout"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for half, is_new in HALVES.items():
        for kind, count in NUM_OF_KIND.items():
            for number in range(count):
                rng = random.Random(f"{SEED}-{half}-{kind}-{number}")
                writer = Writer(rng, heldout=is_new)
                tools = writer.tools(1 + number % MAX_TOOLS)
                _, messages = writer.conversation(tools, kind)
                if rng.random() < 0.15:
                    messages.insert(0, {"role": "system", "content": rng.choice(SYSTEM_PROMPTS)})
                declared = [tool.declaration() for tool in tools]
                lines.append({"half": half, "kind": kind, "tools": plain(declared), "messages": plain(messages)})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "conversations.jsonl").write_text(text)
    tokenizer = load_tokenizer(CHECKPOINT_FOLDER)
    rendered = [
        {"line": number, "text": tokenizer.apply_chat_template(line["messages"], tools=line["tools"], tokenize=False)}
        for number, line in list(enumerate(lines))[::RENDERED_EVERY]
    ]
    (folder / "rendered.json").write_text(json.dumps(rendered, indent=1) + "\n")
    print(f"{len(lines)} conversations")


if __name__ == "__main__":
    main()
