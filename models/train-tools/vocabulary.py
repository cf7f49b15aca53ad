"""The tokenizer and the chat template, in the form of Hermes and Qwen2.5.

Letters, digits (at most two) and everything else are never joined in one token, and a space never
belongs to the word behind it. A word therefore has the same tokens in a question, in a function's name and
in JSON, which is what a small model needs to copy it.
"""

from __future__ import annotations

import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from conversations import SMALL_TALK, SYSTEM_PROMPTS, Writer
from marks import strip_marks

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TAGS = ("<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
VOCABULARY_SIZE = 1280
CORPUS_SEED = "vocabulary-1"

CHAT_TEMPLATE = """\
{%- if messages[0]['role'] == 'system' or messages[0]['role'] == 'developer' -%}
  {%- set system_message = messages[0] -%}
  {%- set turns = messages[1:] -%}
{%- else -%}
  {%- set system_message = none -%}
  {%- set turns = messages -%}
{%- endif -%}
{%- macro text_of(content) -%}
  {%- if content is string -%}
    {{- content | trim -}}
  {%- elif content -%}
    {%- for part in content if part['type'] == 'text' -%}
      {{- part['text'] | trim -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- if tools or system_message -%}
  {{- '<|im_start|>system\\n' -}}
  {%- if system_message -%}
    {{- text_of(system_message['content']) -}}
    {%- if tools -%}
      {{- '\\n\\n' -}}
    {%- endif -%}
  {%- endif -%}
  {%- if tools -%}
    {{- '# Tools\\n<tools>' -}}
    {%- for tool in tools -%}
      {{- '\\n' -}}
      {{- tool | tojson -}}
    {%- endfor -%}
    {{- '\\n</tools>\\nTo call a function:\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>' -}}
  {%- endif -%}
  {{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in turns -%}
  {%- if message['role'] == 'tool' -%}
    {%- if loop.first or turns[loop.index0 - 1]['role'] != 'tool' -%}
      {{- '<|im_start|>user' -}}
    {%- endif -%}
    {{- '\\n<tool_response>\\n' -}}
    {{- text_of(message['content']) -}}
    {{- '\\n</tool_response>' -}}
    {%- if loop.last or turns[loop.index0 + 1]['role'] != 'tool' -%}
      {{- '<|im_end|>\\n' -}}
    {%- endif -%}
  {%- elif message['role'] == 'assistant' and message['tool_calls'] -%}
    {{- '<|im_start|>assistant' -}}
    {%- set text = text_of(message['content']) -%}
    {%- if text -%}
      {{- '\\n' + text -}}
    {%- endif -%}
    {%- for tool_call in message['tool_calls'] -%}
      {%- set function = tool_call['function'] if tool_call['function'] else tool_call -%}
      {{- '\\n<tool_call>\\n{"name": "' + function['name'] + '", "arguments": ' -}}
      {%- if function['arguments'] is string -%}
        {{- function['arguments'] -}}
      {%- else -%}
        {{- function['arguments'] | tojson -}}
      {%- endif -%}
      {{- '}\\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- else -%}
    {{- '<|im_start|>' + message['role'] + '\\n' -}}
    {{- text_of(message['content']) -}}
    {{- '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def create_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        model_max_length=2048,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def corpus(template: PreTrainedTokenizerFast, num_conversations: int = 12_000) -> list[str]:
    texts = [*SYSTEM_PROMPTS, *SMALL_TALK.keys(), *SMALL_TALK.values()] * 100
    texts += [f"{number:02}" for number in range(100)] * 500  # so that each pair of digits is a token
    for number in range(num_conversations):
        writer = Writer(random.Random(f"{CORPUS_SEED}-{number}"))
        tools = writer.tools(writer.rng.randint(1, 2))
        _, messages = writer.conversation(tools)
        declared = [tool.declaration() for tool in tools]
        rendered = template.apply_chat_template(messages, tools=declared, tokenize=False)
        texts.append(strip_marks(rendered)[0])
    return texts


def train_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    pieces = Regex(r"\p{L}+|[0-9]{1,2}|[^\p{L}0-9]+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE - len(TAGS),
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = corpus(create_tokenizer(tokenizer))
    for tag in (*TAGS, START, END):
        texts = [text.replace(tag, " ") for text in texts]
    tokenizer.train_from_iterator(texts, trainer)
    # As in Qwen2.5 the tags are tokens but not special ones: they stay in the decoded text.
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return create_tokenizer(tokenizer)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer in `folder`, trained there first if it is missing."""
    if not (folder / "tokenizer.json").exists():
        train_tokenizer().save_pretrained(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
