/** Parts of bodies of `/v1/responses`. */

export const picture = "data:image/png;base64,AAAA";
export const weather = {
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  strict: true,
};
