/** Bad requests to `/v1/messages`: each error names the field's path and what to do, in Anthropic's form. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import { hello, image, weather } from "./message-parts.ts";

const path = "/v1/messages";
const check = wireSchemas("anthropic-messages.json");

const user = (content: unknown) => ({ max_tokens: 5, messages: [{ role: "user", content }] });
const assistant = (content: unknown) => ({ max_tokens: 5, messages: [{ role: "assistant", content }] });
const tools = (...given: unknown[]) => ({ ...hello, tools: given });

/** Body and message, which starts with the path of the invalid field. */
const badBodies: [object, RegExp][] = [
  [{ messages: hello.messages }, /^max_tokens must be a number/],
  [{ ...hello, max_tokens: "5" }, /^max_tokens must be a number/],
  [{ ...hello, max_tokens: -1 }, /^max_tokens must be at least 1/],
  [{ max_tokens: 5 }, /^messages must be a list/],
  [{ max_tokens: 5, messages: [] }, /^messages must contain at least one message/],
  [{ max_tokens: 5, messages: ["a"] }, /^messages\[0\] must be an object/],
  [
    { max_tokens: 5, messages: [{ role: "tool", content: "a" }] },
    /^messages\[0\]\.role must be user, assistant or system/,
  ],
  [user(5), /^messages\[0\]\.content must be a string or a list of blocks/],
  [user([{ type: "video" }]), /^messages\[0\]\.content\[0\]\.type .*got "video"/],
  [user([{ type: "document" }]), /^messages\[0\]\.content\[0\]\.source/],
  [user([{ type: "text" }]), /^messages\[0\]\.content\[0\]\.text must be a string/],
  [user([{ type: "image" }]), /^messages\[0\]\.content\[0\]\.source must be an object/],
  [user([{ type: "image", source: { type: "path" } }]), /source\.type must be base64, url or file; got "path"/],
  [user([{ type: "image", source: { type: "file", file_id: "" } }]), /source\.file_id must not be empty/],
  [
    user([{ type: "image", source: { type: "base64", media_type: "image/tiff", data: "AA" } }]),
    /source\.media_type must be image\/jpeg/,
  ],
  [user([{ type: "image", source: { type: "url" } }]), /source\.url must be a string/],
  [
    user([{ type: "tool_use", id: "1", name: "a", input: {} }]),
    /content\[0\]\.type cannot be tool_use in a message of the user/,
  ],
  [user([{ type: "tool_result" }]), /tool_use_id must be a string/],
  [
    user([{ type: "tool_result", tool_use_id: "1", content: [{ type: "video" }] }]),
    /must be a supported block type: text, image, document, search_result or tool_reference/,
  ],
  [assistant([image]), /cannot be image in a message of the assistant/],
  [assistant([{ type: "tool_use", id: "1", name: "a", input: "{}" }]), /input must be an object/],
  [assistant([{ type: "tool_use", id: "1", name: "", input: {} }]), /name must not be empty/],
  [{ ...hello, system: 5 }, /^system must be a string or a list of text blocks/],
  [{ ...hello, system: [image] }, /^system\[0\]/],
  [{ ...hello, model: "other" }, /does not exist/],
  [{ ...hello, temperature: "hot" }, /^temperature must be a number/],
  [{ ...hello, top_p: 2 }, /top_p/],
  [{ ...hello, top_k: 1.5 }, /^top_k must be a whole number/],
  [{ ...hello, stop_sequences: "END" }, /^stop_sequences must be a list of strings/],
  [{ ...hello, stop_sequences: [""] }, /stop/],
  [{ ...hello, stream: 1 }, /^stream must be true or false/],
  [{ ...hello, thinking: { type: "much" } }, /^thinking\.type must be enabled/],
  [{ ...hello, thinking: { type: "enabled", budget_tokens: -1 } }, /^thinking\.budget_tokens must be at least 0/],
  [{ ...hello, output_config: { effort: "much" } }, /^output_config\.effort must be none/],
  [{ ...hello, output_config: { format: { type: "yaml" } } }, /^output_config\.format\.type must be json_schema/],
  [tools(5), /^tools\[0\] must be an object/],
  [tools({ name: "a" }), /^tools\[0\]/],
  [tools({ ...weather, name: "a b" }), /^tools\[0\]\.name must be 1 to 128 letters/],
  [tools({ ...weather, input_schema: "{}" }), /^tools\[0\]\.input_schema must be a JSON Schema/],
  [tools(weather, weather), /^tools\[1\]\.name is the name of two tools/],
  [{ ...hello, tool_choice: { type: "any" } }, /^tool_choice can only require a call when tools has a function/],
  [{ ...tools(weather), tool_choice: "auto" }, /^tool_choice must be/],
  [
    { ...tools(weather), tool_choice: { type: "tool", name: "b" } },
    /^tool_choice names a tool that tools does not have: b/,
  ],
  [
    { ...tools(weather), tool_choice: { type: "any" }, structured_outputs: { regex: "a" } },
    /^structured_outputs cannot be combined/,
  ],
  [{ ...hello, thread: { type: "continue", previous_message_id: "msg_1" } }, /^thread is not supported.*all messages/],
  [{ ...hello, container: "a" }, /^container is not supported/],
  [{ ...hello, return_token_ids: true }, /^return_token_ids is not supported.*chat and text completions have it/],
  [{ ...hello, return_tokens_as_token_ids: true }, /^return_tokens_as_token_ids is not supported/],
  [{ ...hello, mcp_servers: [{ url: "a" }] }, /^mcp_servers is not supported.*in the client/],
];

test.for(badBodies.map(([body, message], index) => ({ body, message, index })))(
  "an invalid value is rejected with $message ($index)",
  async ({ body, message }) => {
    const { post, engine } = createTestApp();
    const response = await post(path, body);
    const answer = (await response.json()) as { error: { type: string; message: string } };
    check("ErrorResponse", answer);
    expect(answer.error.message).toMatch(message);
    const isUnknownModel = answer.error.type === "not_found_error";
    expect(response.status).toBe(isUnknownModel ? 404 : 400);
    expect(engine.requests).toHaveLength(0);
  },
);

test("an error of a picture names its place in the body", async () => {
  const { post } = createTestApp({
    script: [new EngineError("invalid_image", "The image is broken.", { parameter: "prompt.images[1]" })],
  });
  const result = { type: "tool_result", tool_use_id: "1", content: [{ type: "text", text: "a" }, image] };
  const response = await post(path, user([image, result]));
  expect(await response.json()).toMatchObject({
    error: { message: "messages[0].content[1].content[1].source: The image is broken." },
  });
});
