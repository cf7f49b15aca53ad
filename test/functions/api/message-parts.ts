/** Parts of bodies of `/v1/messages`. */

export const hello = { max_tokens: 50, messages: [{ role: "user", content: "Hello?" }] };
export const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } };
export const weather = {
  name: "get_weather",
  description: "The weather in a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } } },
};
