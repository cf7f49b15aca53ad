"""LiteLLM's client against a service. Prints one JSON object: the result of each case by its name.

Usage: litellm_client.py BASE_URL API_KEY MODEL DATA_URL_OF_A_PICTURE
"""

import json
import sys
import traceback

import litellm

base_url, api_key, model, picture = sys.argv[1:]
provided = {"api_base": base_url, "api_key": api_key, "max_retries": 0, "num_retries": 0}
image = {"type": "image_url", "image_url": {"url": picture}}
describe = [{"role": "user", "content": [image, {"type": "text", "text": "Describe the picture."}]}]
tool = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "enum": ["center", "top left"]}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}


def chat(provider):
    answer = litellm.completion(model=f"{provider}/{model}", messages=describe, **provided)
    return answer.choices[0].message.content


def stream(provider):
    chunks = list(litellm.completion(model=f"{provider}/{model}", messages=describe, stream=True, **provided))
    joined = litellm.stream_chunk_builder(chunks, messages=describe)
    return {"num_chunks": len(chunks), "content": joined.choices[0].message.content}


def tools(provider):
    answer = litellm.completion(
        model=f"{provider}/{model}", messages=describe, tools=[tool], tool_choice="required", **provided
    )
    [choice] = answer.choices
    call = choice.message.tool_calls[0].function
    return {"reason": choice.finish_reason, "name": call.name, "arguments": json.loads(call.arguments)}


def responses(_):
    part = {"type": "input_image", "image_url": picture, "detail": "auto"}
    words = {"type": "input_text", "text": "Describe the picture."}
    answer = litellm.responses(model=f"openai/{model}", input=[{"role": "user", "content": [part, words]}], **provided)
    return answer.output_text


def errors(provider):
    question = [{"role": "user", "content": "a"}]
    calls = {
        "wrong_field": {"messages": question, "temperature": 9},
        "wrong_model": {"messages": question, "model": f"{provider}/another"},
        "wrong_key": {"messages": question, "api_key": "another"},
        "long_prompt": {"messages": [{"role": "user", "content": "star " * 5000}]},
    }
    thrown = {}
    for name, fields in calls.items():
        try:
            litellm.completion(**{"model": f"{provider}/{model}", **provided, **fields})
        except Exception as error:  # pylint: disable=broad-exception-caught
            thrown[name] = [type(error).__name__, getattr(error, "status_code", None)]
    return thrown


def result_of(case, provider):
    try:
        return case(provider)
    except Exception:  # pylint: disable=broad-exception-caught
        return {"failed": traceback.format_exc()}


litellm.suppress_debug_info = True
cases = [chat, stream, tools, responses, errors]
providers = ["openai", "hosted_vllm"]
print(json.dumps({provider: {case.__name__: result_of(case, provider) for case in cases} for provider in providers}))
