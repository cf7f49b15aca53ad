"""Share of held-out answers that greedy decoding in transformers gets exactly right, per kind.

    python evaluate.py [--wrong]

Float32, batches of questions padded on the left, pictures through the checkpoint's own processor.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import torch
from PIL import Image
from transformers import AutoProcessor, LlavaForConditionalGeneration

from train import CHECKPOINT_FOLDER

BATCH_SIZE = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT_FOLDER)
    parser.add_argument("--set", type=Path, default=CHECKPOINT_FOLDER / "heldout")
    parser.add_argument("--wrong", action="store_true", help="print the wrong answers")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    processor = AutoProcessor.from_pretrained(options.checkpoint)
    model = LlavaForConditionalGeneration.from_pretrained(options.checkpoint, dtype=torch.float32).eval()
    cases = [json.loads(line) for line in (options.set / "questions.jsonl").read_text().splitlines()]
    asked, right = Counter(), Counter()
    for start in range(0, len(cases), BATCH_SIZE):
        batch = cases[start : start + BATCH_SIZE]
        chats = [
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": case["question"]}]}]
            for case in batch
        ]
        prompts = [processor.apply_chat_template(chat, add_generation_prompt=True) for chat in chats]
        images = [Image.open(options.set / case["image"]) for case in batch]
        inputs = processor(images=images, text=prompts, padding=True, return_tensors="pt")
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=96, do_sample=False)
        answers = processor.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        for case, answer in zip(batch, answers, strict=True):
            asked[case["kind"]] += 1
            right[case["kind"]] += answer == case["answer"]
            if options.wrong and answer != case["answer"]:
                print(f"{case['image']} {case['kind']}: {case['question']}\n  {case['answer']}\n  {answer}")
    for kind in sorted(asked):
        print(f"{kind:12} {right[kind]:4} of {asked[kind]:4}  {100 * right[kind] / asked[kind]:.1f} %")
    total, correct = asked.total(), right.total()
    print(f"{'all':12} {correct:4} of {total:4}  {100 * correct / total:.1f} %")


if __name__ == "__main__":
    main()
