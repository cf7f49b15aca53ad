import { expect, test } from "vitest";

import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import { testImageSource } from "../../contracts/image-source.ts";

const source = createDataUrlImageSource();
const fetchData = (reference: string, maxImageBytes = 1_000): Promise<Uint8Array> =>
  source.fetch(reference, { signal: new AbortController().signal, maxImageBytes });

testImageSource("data URLs", async () => ({
  source,
  store: async (bytes) => `data:image/png;base64,${Buffer.from(bytes).toString("base64")}`,
  missing: [],
  malformed: ["data:", "data:image/png;base64", "data:image/png,AAAA", "data:;base64,AA", "data:;base64,A-_A"],
  close: async () => {},
}));

test.for([
  "data:;base64,Zm92ZWE=",
  "DATA:IMAGE/PNG;BASE64,Zm92ZWE=",
  "data:image/png;charset=utf-8;name=a.png;base64,Zm92ZWE=",
  "data:text/plain;base64,Zm92ZWE=",
])("%s is served", async (reference) => {
  expect(Buffer.from(await fetchData(reference)).toString()).toBe("fovea");
});

test.for([
  ["data:image/png;base64", "no comma"],
  ["data:image/png;base64;Zm92ZWE=", "no comma"],
  ["data:image/png,Zm92ZWE=", ";base64"],
  ["data:image/png;base64 ,Zm92ZWE=", ";base64"],
  ["data:image/png;xbase64,Zm92ZWE=", ";base64"],
  ["data:image/png;base64,", "no data"],
  ["data:image/png;base64,Zm92ZWE", "multiple of 4"],
  ["data:image/png;base64,Zm92 ZWE", "white space"],
  ["data:image/png;base64,Zm9\nZWE=", "white space"],
  ["data:image/png;base64,Zm92ZWE=\n", "white space"],
  ["data:image/png;base64,Zm-2ZW_=", "base64url"],
  ["data:image/png;base64,Zg==ZWE=", "not base64"],
  ["data:image/png;base64,Z===", "not base64"],
  ["data:image/png;base64,%5A%6DVl", "percent-encoded"],
  ["data:image/png;base64,Zmé2ZWE=", "not base64"],
  ["image/png;base64,Zm92ZWE=", "data:"],
])("%j is rejected: %s", async ([reference, reason]) => {
  await expect(fetchData(reference!)).rejects.toMatchObject({
    code: "invalid_image_reference",
    message: expect.stringContaining(reason!),
  });
});

test("a media type that never ends is rejected without reading on", async () => {
  await expect(fetchData(`data:${"a".repeat(2_000)};base64,Zm92ZWE=`)).rejects.toMatchObject({
    code: "invalid_image_reference",
  });
});

test("the size is checked before decoding, with both numbers", async () => {
  await expect(fetchData(`data:;base64,${"!".repeat(4_000)}`, 2_000)).rejects.toMatchObject({
    code: "image_too_large",
    message: "The image has 3000 bytes; the limit is 2000.",
  });
});
