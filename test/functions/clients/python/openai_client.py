"""OpenAI's Python client against a service. Prints one JSON object: the result of each case by its name.

Usage: openai_client.py BASE_URL API_KEY MODEL DATA_URL_OF_A_PICTURE NUM_TOKENS_OF_AN_ENDLESS_ANSWER [MODEL_OF_FILES]

MODEL_OF_FILES tells LiteLLM's proxy which of its models a file belongs to.
"""

import asyncio
import json
import sys
import time
import traceback
from enum import Enum

import openai
from openai.types.responses import Response
from pydantic import BaseModel

base_url, api_key, model, picture, num_endless_tokens, *model_of_files = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
describe = "Describe the picture."


def ask(question):
    image = {"type": "image_url", "image_url": {"url": picture}}
    return {"role": "user", "content": [image, {"type": "text", "text": question}]}


def chat():
    answer = client.chat.completions.create(model=model, messages=[ask(describe)])
    choice = answer.choices[0]
    return {"content": choice.message.content, "reason": choice.finish_reason, "usage": answer.usage.model_dump()}


def stream():
    deltas, usage, reasons = [], None, []
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model=model, messages=[ask(describe)], stream=True, stream_options=options
    ):
        deltas += [choice.delta.content for choice in chunk.choices if choice.delta.content]
        reasons += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
        usage = chunk.usage.model_dump() if chunk.usage else usage
    return {"deltas": deltas, "reasons": reasons, "usage": usage}


look = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks at a place of the picture.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "enum": ["center", "top left"]}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}


def tool_loop():
    messages, calls = [ask("What is in the center?")], []
    for _ in range(3):
        with client.chat.completions.stream(
            model=model, messages=messages, tools=[look], tool_choice="required", parallel_tool_calls=False
        ) as answer:
            choice = answer.get_final_completion().choices[0]
        [call] = choice.message.tool_calls
        calls.append([choice.finish_reason, call.function.name, call.function.parsed_arguments])
        messages.append(choice.message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "A large blue square"})
    last = client.chat.completions.create(model=model, messages=messages, tools=[look], tool_choice="none")
    return {"calls": calls, "content": last.choices[0].message.content, "reason": last.choices[0].finish_reason}


class Color(str, Enum):
    red = "Red"
    yellow = "Yellow"
    blue = "Blue"


class Answer(BaseModel):
    color: Color


def structured():
    question = [ask("What color is the star?")]
    answer = client.chat.completions.parse(model=model, messages=question, response_format=Answer)
    return answer.choices[0].message.parsed.model_dump(mode="json")


def response_input(question):
    image = {"type": "input_image", "image_url": picture, "detail": "auto"}
    return [{"role": "user", "content": [image, {"type": "input_text", "text": question}]}]


def responses():
    answer = client.responses.create(model=model, input=response_input(describe))
    return {"text": answer.output_text, "status": answer.status}


def response_stream():
    with client.responses.stream(model=model, input=response_input(describe)) as events:
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        return {"deltas": deltas, "text": events.get_final_response().output_text}


def models():
    return [entry.id for entry in client.models.list()]


def batch():
    def line(custom_id, **fields):
        body = {"model": model, "input": response_input("What color is the star?"), **fields}
        return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/responses", "body": body})

    lines = "\n".join([line("star"), line("wrong", temperature=9)]).encode()
    routed = {"extra_body": {"model": model_of_files[0]}} if model_of_files else {}
    uploaded = client.files.create(file=("requests.jsonl", lines), purpose="batch", **routed)
    created = client.batches.create(input_file_id=uploaded.id, endpoint="/v1/responses", completion_window="24h")
    while created.status not in ("completed", "failed", "cancelled", "expired"):
        time.sleep(0.05)
        created = client.batches.retrieve(created.id)
    results = client.files.content(created.output_file_id).text
    answers = [Response.model_validate(json.loads(line)["response"]["body"]) for line in results.splitlines()]
    errors = client.files.content(created.error_file_id).text
    statuses = [json.loads(line)["response"]["status_code"] for line in errors.splitlines()]
    counts = created.request_counts
    deleted = [client.files.delete(file).deleted for file in (uploaded.id, created.output_file_id)]
    return {
        "answers": [answer.output_text for answer in answers],
        "wrong": statuses,
        "counts": [counts.completed, counts.failed, counts.total],
        "deleted": deleted,
    }


def error_of(call):
    try:
        call()
    except openai.APIStatusError as error:
        return {"type": type(error).__name__, "status": error.status_code, "code": error.code, "param": error.param}
    return None


def errors():
    question = [{"role": "user", "content": "a"}]
    create = client.chat.completions.create
    return {
        "wrong_field": error_of(lambda: create(model=model, messages=question, temperature=9)),
        "wrong_model": error_of(lambda: create(model="another", messages=question)),
        "wrong_key": error_of(
            lambda: client.with_options(api_key="another").chat.completions.create(model=model, messages=question)
        ),
        "long_prompt": error_of(
            lambda: create(model=model, messages=[{"role": "user", "content": "star " * 5000}])
        ),
        "no_embeddings": error_of(lambda: client.embeddings.create(model=model, input="a")),
    }


def abort():
    async def leave():
        async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0) as async_client:
            question = [{"role": "user", "content": describe}]
            answer = await async_client.chat.completions.create(
                model=model, messages=question, stream=True, max_tokens=int(num_endless_tokens)
            )
            async for chunk in answer:
                if chunk.choices and chunk.choices[0].delta.content:
                    await answer.close()
                    return True
        return False

    return asyncio.run(leave())


def result_of(case):
    try:
        return case()
    except Exception:  # pylint: disable=broad-exception-caught
        return {"failed": traceback.format_exc()}


cases = [chat, stream, tool_loop, structured, responses, response_stream, models, batch, errors, abort]
print(json.dumps({case.__name__: result_of(case) for case in cases}))
