"""The tokenizer: byte-level BPE learned from the questions and answers, and the chat template.

Labels are kept out of the corpus, so that print is spelled character by character.
"""

from __future__ import annotations

import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from questions import SYSTEM_PROMPTS, ask
from scene import random_label, random_shapes

PAD, BOS, EOS, IMAGE = "<pad>", "<s>", "</s>", "<image>"
USER, ASSISTANT, SYSTEM = "<|user|>", "<|assistant|>", "<|system|>"
SPECIAL_TOKENS = (PAD, BOS, EOS, IMAGE, USER, ASSISTANT, SYSTEM)  # ids 0 to 6
VOCABULARY_SIZE = 768
CORPUS_SEED = "vocabulary-1"

# Content is a string or a list of parts; a message's images come before its text.
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message['role'] == 'system' or message['role'] == 'developer' -%}
    {{- '<|system|>' -}}
  {%- elif message['role'] == 'assistant' -%}
    {{- '<|assistant|>' -}}
  {%- else -%}
    {{- '<|user|>' -}}
  {%- endif -%}
  {%- if message['content'] is string -%}
    {{- message['content'] | trim -}}
  {%- else -%}
    {%- for part in message['content'] if part['type'] == 'image' or part['type'] == 'image_url' -%}
      {{- '<image>' -}}
    {%- endfor -%}
    {%- for part in message['content'] if part['type'] == 'text' -%}
      {{- part['text'] | trim -}}
    {%- endfor -%}
  {%- endif -%}
  {%- if message['role'] == 'assistant' -%}
    {{- eos_token -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|assistant|>' -}}
{%- endif -%}
"""


def corpus(num_scenes: int = 20_000) -> list[str]:
    rng = random.Random(CORPUS_SEED)
    lines = list(SYSTEM_PROMPTS) * 200
    for _ in range(num_scenes):
        scene = random_label(rng) if rng.random() < 0.2 else random_shapes(rng)
        for _ in range(3):
            question = ask(scene, rng)
            answer = question.answer.replace(scene.label.text, "") if scene.label else question.answer
            lines += [question.text, answer]
    return lines


def train_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        extra_special_tokens={"image_token": IMAGE},
        additional_special_tokens=[USER, ASSISTANT, SYSTEM],
        model_max_length=2048,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in `folder`, trained there first if it is missing."""
    if not (folder / "tokenizer.json").exists():
        train_tokenizer().save_pretrained(folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
