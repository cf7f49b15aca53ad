/** Fields of bodies that are rejected, and those that are accepted without an effect. */
import { expect, test } from "vitest";

import { chatBody, createTestApp } from "../../support/service/test-app.ts";

interface ErrorAnswer {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
}

const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
const tool = (fields: object = {}) => ({ type: "function", function: { name: "look_up", ...fields } });
const named = (name: string) => ({ type: "function", function: { name } });
const allowing = (...names: readonly string[]) => ({
  type: "allowed_tools",
  allowed_tools: { mode: "auto", tools: names.map(named) },
});
const assistantCalling = (call: object) => ({
  messages: [{ role: "assistant", tool_calls: [{ id: "1", type: "function", function: call }] }],
});

/** Body, path of the invalid field, and message. */
const badChats: [unknown, string | null, RegExp][] = [
  ["{", null, /not valid JSON/],
  ['{"messages": [{"role":"user","content":"a"}], "temperature": NaN}', null, /not valid JSON/],
  ["[]", null, /must be a JSON object/],
  ["null", null, /must be a JSON object/],
  ["", null, /not valid JSON/],
  [{}, "messages", /must be a list of messages/],
  [{ messages: [] }, "messages", /at least one message/],
  [{ messages: "hi" }, "messages", /must be a list/],
  [
    { messages: [{ role: "wizard", content: "a" }] },
    "messages[0].role",
    /one of system, developer, user, assistant, tool; got "wizard"/,
  ],
  [{ messages: [{ content: "a" }] }, "messages[0].role", /one of system/],
  [{ messages: [{ role: "function", content: "a", name: "f" }] }, "messages[0].role", /got "function"/],
  [{ messages: ["hi"] }, "messages[0]", /must be an object/],
  [user(5), "messages[0].content", /must be a string or a list of parts/],
  [user(null), "messages[0].content", /must be a string or a list of parts/],
  [user([{ type: "input_audio", input_audio: {} }]), "messages[0].content[0].type", /got "input_audio"/],
  [
    user([{ type: "audio" }]),
    "messages[0].content[0].type",
    /: text, image_url, video_url, video, file, document_url, input_text, input_image, input_video, input_file or image_embeds; got/,
  ],
  [user([{ type: "text" }]), "messages[0].content[0].text", /must be a string/],
  [
    user([{ type: "image_url" }]),
    "messages[0].content[0].image_url",
    /must be an object.* null is allowed only with a uuid/,
  ],
  [
    user([{ type: "image_url", image_url: null }]),
    "messages[0].content[0].image_url",
    /null is allowed only with a uuid/,
  ],
  [
    user([{ type: "input_image", image_url: null }]),
    "messages[0].content[0].image_url",
    /null is allowed only with a file_id or a uuid/,
  ],
  [user([{ type: "image_url", image_url: null, uuid: 5 }]), "messages[0].content[0].uuid", /must be a string/],
  [user([{ type: "image_url", image_url: null, uuid: "" }]), "messages[0].content[0].uuid", /must not be empty/],
  [user([{ type: "image_embeds" }]), "messages[0].content[0].image_embeds", /must be a string/],
  [
    user([{ type: "image_embeds", image_embeds: { image_embeds: "AAAA", image_grid_thw: [1, 4] } }]),
    "messages[0].content[0].image_embeds.image_grid_thw",
    /must be a list of three integers from 1 to 16384/,
  ],
  [{ ...chatBody, mm_processor_kwargs: [1] }, "mm_processor_kwargs", /must be an object/],
  [user([5]), "messages[0].content[0]", /must be an object/],
  [user([{ type: "image_url", image_url: 5 }]), "messages[0].content[0].image_url", /must be an object/],
  [
    user([
      { type: "text", text: "a" },
      { type: "image_url", image_url: {} },
    ]),
    "messages[0].content[1].image_url.url",
    /must be a string/,
  ],
  [
    { messages: [{ role: "assistant", content: null, tool_calls: [{ id: "1" }] }] },
    "messages[0].tool_calls[0].function",
    /must be an object/,
  ],
  [assistantCalling({ name: "" }), "messages[0].tool_calls[0].function.name", /must not be empty/],
  [
    assistantCalling({ name: "f", arguments: `{"a":${"[".repeat(200)}` }),
    "messages[0].tool_calls[0].function.arguments",
    /arguments has more than 100 levels of lists and objects/,
  ],
  [
    assistantCalling({ name: "f", arguments: "[1]" }),
    "messages[0].tool_calls[0].function.arguments",
    /must be a string with a JSON object, which this JSON is not/,
  ],
  [{ ...chatBody, temperature: "NaN" }, "temperature", /must be a number/],
  [JSON.stringify(chatBody).replace("}]}", '}],"temperature":1e999}'), "temperature", /must be a finite number/],
  [{ ...chatBody, temperature: -1 }, "temperature", /^temperature must be non-negative, got -1/],
  [{ ...chatBody, temperature: 2.5 }, "temperature", /must be in \[0, 2\], got 2.5/],
  [{ ...chatBody, top_p: 0 }, "top_p", /^top_p must be in \(0, 1\], got 0/],
  [{ ...chatBody, top_p: 1.1 }, "top_p", /in \(0, 1\], got 1.1/],
  [{ ...chatBody, top_k: -2 }, "top_k", /^top_k must be 0 \(disable\), or at least 1, got -2/],
  [{ ...chatBody, top_k: 1.5 }, "top_k", /whole number/],
  [{ ...chatBody, min_p: 1.5 }, "min_p", /^min_p must be in \[0, 1\]/],
  [{ ...chatBody, max_tokens: 0 }, "max_tokens", /^max_tokens must be at least 1, got 0/],
  [{ ...chatBody, max_tokens: -1 }, "max_tokens", /at least 1/],
  [{ ...chatBody, max_tokens: "5" }, "max_tokens", /must be a number/],
  [{ ...chatBody, max_completion_tokens: 0 }, "max_completion_tokens", /^max_completion_tokens must be at least 1/],
  [{ ...chatBody, min_tokens: -1 }, "min_tokens", /greater than or equal to 0, got -1/],
  [
    { ...chatBody, min_tokens: 5, max_tokens: 2 },
    "min_tokens",
    /^min_tokens must be less than or equal to max_tokens=2, got 5/,
  ],
  [{ ...chatBody, seed: 1.5 }, "seed", /whole number/],
  [{ ...chatBody, stop: [""] }, "stop", /empty string/],
  [{ ...chatBody, stop: [5] }, "stop[0]", /must be a string/],
  [{ ...chatBody, stop: Array.from({ length: 65 }, () => "a") }, "stop", /at most 64/],
  [{ ...chatBody, stop_token_ids: ["a"] }, "stop_token_ids[0]", /must be a number/],
  [{ ...chatBody, stop_token_ids: [-1] }, "stop_token_ids[0]", /token id/],
  [{ ...chatBody, top_logprobs: 2 }, "top_logprobs", /when logprobs is true/],
  [
    { ...chatBody, logprobs: true, top_logprobs: 21 },
    "top_logprobs",
    /^Requested sample logprobs of 21, which is greater than max allowed: 20/,
  ],
  [{ ...chatBody, logprobs: true, top_logprobs: -1 }, "top_logprobs", /at least 0/],
  [{ ...chatBody, logprobs: 3 }, "logprobs", /true or false/],
  [{ ...chatBody, stream: "yes" }, "stream", /true or false/],
  [{ ...chatBody, stream_options: { include_usage: false } }, "stream_options", /when stream is true/],
  [{ ...chatBody, stream: true, stream_options: 5 }, "stream_options", /must be an object/],
  [{ ...chatBody, vllm_xargs: { a: null } }, "vllm_xargs.a", /string, number or boolean/],
  [{ ...chatBody, vllm_xargs: { a: [[1]] } }, "vllm_xargs.a[0]", /string, number or boolean/],
  [{ ...chatBody, vllm_xargs: { a: {} } }, "vllm_xargs.a", /string, number or boolean/],
  [{ ...chatBody, n: 1.5 }, "n", /whole number/],
  [{ ...chatBody, best_of: 3 }, "best_of", /not supported by this service; n returns that many choices/],
  [{ ...chatBody, tools: [{ type: "function" }] }, "tools[0].function", /must be an object/],
  [{ ...chatBody, tools: [{ type: "web_search" }] }, "tools[0].type", /must be function or custom/],
  [{ ...chatBody, tools: [tool({ name: "look up" })] }, "tools[0].function.name", /1 to 64 letters/],
  [{ ...chatBody, tools: [tool({ name: "a".repeat(65) })] }, "tools[0].function.name", /1 to 64 letters/],
  [{ ...chatBody, tools: [tool({ name: "" })] }, "tools[0].function.name", /1 to 64 letters/],
  [{ ...chatBody, tools: [tool(), tool()] }, "tools[1].function.name", /is the name of two tools: look_up/],
  [
    { ...chatBody, tools: Array.from({ length: 1000 }, (_, index) => tool({ name: `tool_${index}` })) },
    "tools",
    /at most 256 entries, not 1000/,
  ],
  [{ ...chatBody, tools: [tool({ parameters: "{}" })] }, "tools[0].function.parameters", /must be a JSON Schema/],
  [
    { ...chatBody, tools: [tool({ parameters: { type: "string" } })] },
    "tools[0].function.parameters.type",
    /must be object/,
  ],
  [{ ...chatBody, tool_choice: "required" }, "tool_choice", /only be given with tools/],
  [{ ...chatBody, tool_choice: named("f") }, "tool_choice", /only be given with tools/],
  [{ ...chatBody, tools: [tool()], tool_choice: named("f") }, "tool_choice", /a tool that tools does not have: f/],
  [{ ...chatBody, tools: [tool()], tool_choice: "some" }, "tool_choice", /must be auto, none, required, \{/],
  [
    { ...chatBody, tools: [tool()], tool_choice: "required", structured_outputs: { regex: "a" } },
    "structured_outputs",
    /cannot be combined with a tool_choice that requires a call/,
  ],
  [{ ...chatBody, tools: [tool()], tool_choice: allowing("f") }, "tool_choice", /a tool that tools does not have: f/],
  [{ ...chatBody, tools: [tool()], tool_choice: allowing() }, "tool_choice.allowed_tools.tools", /must not be empty/],
  [
    { ...chatBody, tools: [tool()], tool_choice: { type: "allowed_tools" } },
    "tool_choice.allowed_tools",
    /must be an object/,
  ],
  [{ ...chatBody, chat_template_kwargs: { messages: [] } }, "chat_template_kwargs.messages", /set by the service/],
  [{ ...chatBody, chat_template_kwargs: [] }, "chat_template_kwargs", /must be an object/],
  [{ ...chatBody, reasoning_effort: "huge" }, "reasoning_effort", /must be none, minimal, low/],
  [{ ...chatBody, thinking_token_budget: 5 }, "thinking_token_budget", /does not mark its thinking. REASONING_PARSER/],
  [{ ...chatBody, thinking_token_budget: -2 }, "thinking_token_budget", /must be at least 0, or -1 for no limit/],
  [
    { ...chatBody, response_format: { type: "json_object", schema: "a" } },
    "response_format.schema",
    /must be a JSON Schema/,
  ],
  [{ ...chatBody, response_format: { type: "xml" } }, "response_format.type", /text, json_object or json_schema/],
  [{ ...chatBody, response_format: { type: "json" } }, "response_format.value", /must be a JSON Schema/],
  [{ ...chatBody, response_format: { type: "json_schema" } }, "response_format.json_schema", /must be an object/],
  [
    { ...chatBody, response_format: { type: "json_schema", json_schema: { name: "a" } } },
    "response_format.json_schema.schema",
    /must be a JSON Schema/,
  ],
  [{ ...chatBody, logit_bias: { red: 1 } }, "logit_bias", /^logit_bias contains key\(s\) .*\["red"\]/],
  [{ ...chatBody, logit_bias: { 5: "1" } }, "logit_bias.5", /must be a number/],
  [{ ...chatBody, presence_penalty: 2.5 }, "presence_penalty", /^presence_penalty must be in \[-2, 2\], got 2.5/],
  [{ ...chatBody, frequency_penalty: -3 }, "frequency_penalty", /^frequency_penalty must be in \[-2, 2\], got -3/],
  [{ ...chatBody, repetition_penalty: 0 }, "repetition_penalty", /^repetition_penalty must be greater than zero/],
  [{ ...chatBody, allowed_token_ids: [] }, "allowed_token_ids", /^allowed_token_ids is not null and empty/],
  [{ ...chatBody, allowed_token_ids: [1, -1] }, "allowed_token_ids[1]", /token id/],
  [{ ...chatBody, bad_words: [""] }, "bad_words", /^bad_words cannot contain an empty string/],
  [{ ...chatBody, bad_words: "red" }, "bad_words", /list of strings/],
  [{ ...chatBody, echo: true }, "echo", /not supported/],
  [{ ...chatBody, prompt_logprobs: -1 }, "prompt_logprobs", /at least 0/],
  [{ ...chatBody, prompt_logprobs: 21 }, "prompt_logprobs", /^Requested prompt logprobs of 21/],
  [{ ...chatBody, prompt_logprobs: 0, stream: true }, "prompt_logprobs", /when stream is false/],
  [
    { ...chatBody, continue_final_message: true, add_generation_prompt: true },
    "continue_final_message",
    /cannot be combined with add_generation_prompt/,
  ],
  [{ ...chatBody, continue_final_message: 1 }, "continue_final_message", /true or false/],
  [{ ...chatBody, add_special_tokens: "no" }, "add_special_tokens", /true or false/],
  [{ ...chatBody, return_token_ids: 1 }, "return_token_ids", /true or false/],
  [{ ...chatBody, return_tokens_as_token_ids: "yes" }, "return_tokens_as_token_ids", /true or false/],
  [{ ...chatBody, priority: 1 }, "priority", /order of arrival\. .*SCHEDULING_POLICY=priority/],
  [{ ...chatBody, priority: "high" }, "priority", /must be a number/],
  [{ ...chatBody, priority: 0.5 }, "priority", /whole number/],
  [{ ...chatBody, priority: 2 ** 31 }, "priority", /must be between -2147483647 and 2147483647/],
  [{ ...chatBody, request_id: "" }, "request_id", /must consist of letters/],
  [{ ...chatBody, request_id: "two words" }, "request_id", /must consist of letters/],
  [{ ...chatBody, request_id: "line\nbreak" }, "request_id", /must consist of letters/],
  [{ ...chatBody, request_id: "x".repeat(129) }, "request_id", /at most 128 characters, not 129/],
  [{ ...chatBody, request_id: 5 }, "request_id", /must be a string/],
  [{ ...chatBody, chat_template: "{{ x }}" }, "chat_template", /not supported/],
  [{ ...chatBody, structured_outputs: {} }, "structured_outputs", /exactly one of json, .*; got none/],
  [
    { ...chatBody, structured_outputs: { regex: "a", choice: ["a"] } },
    "structured_outputs",
    /exactly one of .*; got regex and choice/,
  ],
  [{ ...chatBody, structured_outputs: { json_object: false } }, "structured_outputs.json_object", /must be true/],
  [{ ...chatBody, structured_outputs: { regex: 5 } }, "structured_outputs.regex", /must be a string/],
  [
    { ...chatBody, structured_outputs: { whitespace_pattern: " " } },
    "structured_outputs.whitespace_pattern",
    /supported/,
  ],
  [
    { ...chatBody, structured_outputs: { regex: "a" }, response_format: { type: "json_object" } },
    "structured_outputs",
    /cannot be combined with response_format/,
  ],
  [
    { ...chatBody, guided_json: { type: "object" }, structured_outputs: { regex: "a" } },
    "guided_json",
    /cannot be combined with structured_outputs/,
  ],
  [{ ...chatBody, guided_json: {}, guided_regex: "a" }, "structured_outputs", /exactly one of .*; got json and regex/],
  [{ ...chatBody, guided_regex: 5 }, "structured_outputs.regex", /must be a string/],
  [
    { ...chatBody, guided_regex: "a", response_format: { type: "json_object" } },
    "structured_outputs",
    /response_format/,
  ],
  [{ ...chatBody, guided_whitespace_pattern: " " }, "guided_whitespace_pattern", /leave it out/],
  [{ ...chatBody, dry_multiplier: 0.8 }, "dry_multiplier", /is not supported by this service; leave it out/],
  [{ ...chatBody, typical_p: 0.5 }, "typical_p", /leave it out/],
  [{ ...chatBody, repeat_penalty: 1.1 }, "repeat_penalty", /send repetition_penalty instead/],
  [{ ...chatBody, no_repeat_ngram_size: 3 }, "no_repeat_ngram_size", /send it in vllm_xargs instead/],
  [{ ...chatBody, regex: "a+" }, "regex", /send structured_outputs: \{"regex": …\} instead/],
  [{ ...chatBody, json_schema: { type: "object" } }, "json_schema", /send structured_outputs: \{"json": …\} instead/],
  [{ ...chatBody, extra_args: { target_token: 3 } }, "extra_args", /take their arguments from vllm_xargs/],
  [{ ...chatBody, custom_params: { a: 1 } }, "custom_params", /from vllm_xargs/],
  [{ ...chatBody, custom_logit_processor: "{}" }, "custom_logit_processor", /from vllm_xargs/],
  [{ ...chatBody, extra_body: { vllm_xargs: {} } }, "extra_body", /send its fields in the body itself/],
  [{ ...chatBody, images: ["data:,"] }, "images", /send images as parts of a message/],
  [{ ...chatBody, image_data: "data:," }, "image_data", /as parts of a message/],
  [{ ...chatBody, multi_modal_data: { image: "data:," } }, "multi_modal_data", /as parts of a message/],
  [
    { ...chatBody, media_io_kwargs: { image: { image_mode: "L" } } },
    "media_io_kwargs.image.image_mode",
    /image_mode can only be "RGB"; leave it out/,
  ],
  [{ ...chatBody, media_io_kwargs: { image: { dpi: 9 } } }, "media_io_kwargs.image.dpi", /cannot be set/],
  [{ ...chatBody, media_io_kwargs: { image: 3 } }, "media_io_kwargs.image", /must be an object/],
  [{ ...chatBody, media_io_kwargs: [] }, "media_io_kwargs", /must be an object/],
  [{ ...chatBody, prompt_embeds: "AAAA" }, "prompt_embeds", /not supported/],
  [
    { messages: [{ role: "user", content: "a", images: ["iVBO"] }] },
    "messages[0].images",
    /is not supported; send parts of content/,
  ],
  [{ ...chatBody, cache_salt: "" }, "cache_salt", /must not be empty/],
  [{ ...chatBody, cache_salt: 7 }, "cache_salt", /must be a string/],
  [{ ...chatBody, model: 5 }, "model", /must be a string/],
];

test.for(badChats)("chat: %j is rejected at %s", async ([body, param, message]) => {
  const { post, engine } = createTestApp();
  const response = await post("/v1/chat/completions", body);
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as ErrorAnswer;
  expect(error.message).toMatch(message);
  expect(error).toMatchObject({ type: "invalid_request_error", param, code: expect.any(String) });
  expect(engine.requests).toHaveLength(0);
});

test.for<[unknown, string, RegExp]>([
  [{}, "prompt", /must be a string, a list/],
  [{ prompt: [] }, "prompt", /at least one prompt/],
  [{ prompt: [[]] }, "prompt[0]", /token id/],
  [{ prompt: [1, -5] }, "prompt[1]", /^prompt\[1\] must be/],
  [{ prompt: [1, "a"] }, "prompt[1]", /^prompt\[1\] must be/],
  [{ prompt: [[1, -5]] }, "prompt[0][1]", /token id/],
  [{ prompt: ["a", 5] }, "prompt[1]", /string or a list of token ids/],
  [{ prompt: Array.from({ length: 1025 }, () => "a") }, "prompt", /at most 1024/],
  [{ prompt: "a", suffix: "b" }, "suffix", /not supported/],
  [{ prompt: "a", best_of: 2 }, "best_of", /not supported/],
  [{ prompt: "a", multi_modal_data: { image: "data:," } }, "multi_modal_data", /in images of a text completion/],
  [{ prompt: "a", multi_modal_uuids: { image: ["a"] } }, "multi_modal_uuids", /in images of a text completion/],
  [
    { prompt: "a", media_io_kwargs: { image: { rgba_background_color: [0, 0, 0] } } },
    "media_io_kwargs.image.rgba_background_color",
    /can only be \[255,255,255\]/,
  ],
  [{ prompt: "a", max_tokens: 0 }, "max_tokens", /at least 1 unless echo is true/],
  [{ prompt: "a", logprobs: 21 }, "logprobs", /^Requested sample logprobs of 21/],
  [{ prompt: "a", min_tokens: 17 }, "min_tokens", /max_tokens=16, got 17/],
])("completions: %j is rejected at %s", async ([body, param, message]) => {
  const response = await createTestApp().post("/v1/completions", body);
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as ErrorAnswer;
  expect(error.param).toBe(param);
  expect(error.message).toMatch(message);
});

test("unsupported fields without an effect are accepted, and so are unknown fields", async () => {
  const { post } = createTestApp();
  const response = await post("/v1/chat/completions", {
    ...chatBody,
    model: null,
    max_tokens: 1e9,
    temperature: null,
    n: 1,
    tools: null,
    tool_choice: "none",
    response_format: { type: "text" },
    logit_bias: {},
    presence_penalty: 0,
    stop: null,
    user: "someone",
    metadata: { a: "b" },
    reasoning_effort: "low",
    extra_body: {},
    multi_modal_data: null,
    media_io_kwargs: { image: { image_mode: "RGB", rgba_background_color: [255, 255, 255] }, video: { fps: 2 } },
    images: [],
    // As text-generation-webui and llama.cpp write samplers that are off.
    typical_p: 1,
    dry_multiplier: 0,
    top_n_sigma: -1,
    mirostat_mode: 0,
    grammar_string: "",
    __proto__: { polluted: true },
    some_new_field: [1, 2],
  });
  expect(response.status).toBe(200);
});
