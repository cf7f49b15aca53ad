"""Share of held-out turns that greedy decoding in transformers gets exactly right.

    python evaluate.py [--wrong]

Each turn of the assistant is asked for with the right turns before it, and counts if its text is
the right one character by character: the function's name, every argument, the number of calls. A
conversation counts if every turn of it does. Float32, prompts padded on the left.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from train import CHECKPOINT_FOLDER

BATCH_SIZE = 32
MAX_NEW_TOKENS = 160


def turns_of(case: dict, tokenizer: object) -> list[tuple[str, str, str]]:
    """What each turn is ("call" or "answer"), its prompt, and the right text."""
    turns = []
    for index, message in enumerate(case["messages"]):
        if message["role"] != "assistant":
            continue
        options = {"tools": case["tools"], "tokenize": False}
        prompt = tokenizer.apply_chat_template(case["messages"][:index], add_generation_prompt=True, **options)
        whole = tokenizer.apply_chat_template(case["messages"][: index + 1], **options)
        assert whole.startswith(prompt)
        right = whole[len(prompt) :].removesuffix("\n").removesuffix("<|im_end|>")
        turns.append(("call" if "tool_calls" in message else "answer", prompt, right))
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT_FOLDER)
    parser.add_argument("--set", type=Path, default=CHECKPOINT_FOLDER / "heldout")
    parser.add_argument("--wrong", action="store_true", help="print the wrong turns")
    parser.add_argument("--every", type=int, default=1, help="only every n-th conversation")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.checkpoint)
    model = AutoModelForCausalLM.from_pretrained(options.checkpoint, dtype=torch.float32).eval()
    lines = (options.set / "conversations.jsonl").read_text().splitlines()[:: options.every]
    cases = [json.loads(line) for line in lines]
    turns = [(number, *turn) for number, case in enumerate(cases) for turn in turns_of(case, tokenizer)]
    turns.sort(key=lambda turn: len(turn[2]))  # similar lengths together
    asked, right, failed = Counter(), Counter(), set()
    for start in range(0, len(turns), BATCH_SIZE):
        batch = turns[start : start + BATCH_SIZE]
        inputs = tokenizer([prompt for _, _, prompt, _ in batch], padding=True, return_tensors="pt")
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        texts = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        for (number, what, prompt, wanted), text in zip(batch, texts, strict=True):
            case = cases[number]
            key = (case["half"], case["kind"], what)
            asked[key] += 1
            right[key] += text == wanted
            if text != wanted:
                failed.add(number)
                if options.wrong:
                    print(f"--- {key}\n{prompt[-400:]}\nwanted: {wanted}\ngot:    {text}")
    for key in sorted(asked):
        print(f"{' '.join(key):32} {right[key]:4} of {asked[key]:4}  {100 * right[key] / asked[key]:.1f} %")
    for half in sorted({case["half"] for case in cases}):
        for what in ("call", "answer"):
            keys = [key for key in asked if key[0] == half and key[2] == what]
            total, correct = sum(asked[key] for key in keys), sum(right[key] for key in keys)
            print(f"{half + ' all ' + what:32} {correct:4} of {total:4}  {100 * correct / total:.1f} %")
        numbers = [number for number, case in enumerate(cases) if case["half"] == half]
        whole = sum(number not in failed for number in numbers)
        print(f"{half + ' whole conversations':32} {whole:4} of {len(numbers):4}  {100 * whole / len(numbers):.1f} %")


if __name__ == "__main__":
    main()
