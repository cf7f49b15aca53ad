import * as fc from "fast-check";

import type { Answer } from "../answer-reader.ts";
import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { trickyNames, trickyTexts } from "../generators/hostile-json.ts";
import { prepareForHttp } from "../surroundings.ts";
import type { Wire } from "../wire.ts";

const line = '{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"a","max_tokens":1}}\n';

const fileNames = [
  "a.jsonl",
  "",
  "../../a.jsonl",
  "/etc/passwd",
  "C:\\a.jsonl",
  "a\u0000.jsonl",
  'a";b="c',
  "%2e%2e%2fa",
  "a".repeat(5000),
  "é\u{1f469}\u202e.jsonl",
  "a\\",
  "con",
] as const;

/** Headers of a part; `%` stands for a name. */
const partHeads = [
  'Content-Disposition: form-data; name="%"',
  'Content-Disposition: form-data; name="%"; filename="#"',
  'Content-Disposition: form-data; name="%"; filename="#"\r\nContent-Type: application/json',
  'Content-Disposition: form-data; name="%"; filename="#"\r\nContent-Transfer-Encoding: base64',
  "Content-Disposition: form-data; name=%; filename=#",
  "Content-Disposition: form-data; name*=utf-8''%; filename*=utf-8''#",
  'Content-Disposition: attachment; name="%"; filename="#"',
  'Content-Disposition: form-data; filename="#"',
  'CONTENT-DISPOSITION:form-data;NAME="%"',
  "Content-Type: text/plain",
  'Content-Disposition: form-data; name="%"\r\nContent-Type: text/plain; charset=utf-16',
  `X: ${"a".repeat(20_000)}\r\nContent-Disposition: form-data; name="%"; filename="#"`,
  'Content-Disposition: form-data; name="%";;;;; filename="#";',
  "",
  "No colon",
] as const;

const contents = [
  line,
  line.repeat(50),
  "",
  "\n\n\n",
  "{",
  "\u0000\u0001\u0002",
  "\ufeff{}",
  "--b\r\n",
  "\r\n--b--\r\n",
  "\r\n--bX",
  "\r\n-",
  "batch",
  "user_data",
  "a".repeat(5000),
  "a".repeat(300_000),
] as const;

const part = fc
  .record({
    head: fc.oneof(
      { weight: 4, arbitrary: fc.constantFrom(...partHeads.slice(0, 2)) },
      { weight: 2, arbitrary: fc.constantFrom(...partHeads) },
    ),
    name: fc.oneof(
      { weight: 6, arbitrary: fc.constantFrom("file", "purpose") },
      {
        weight: 2,
        arbitrary: fc.constantFrom("expires_after[anchor]", "expires_after", "file[]", ...trickyNames, ...trickyTexts),
      },
    ),
    fileName: fc.constantFrom(...fileNames),
    content: fc.oneof(
      { weight: 2, arbitrary: fc.constantFrom("batch", line) },
      { weight: 1, arbitrary: fc.constantFrom(...contents) },
    ),
  })
  .map(({ head, name, fileName, content }) => {
    const written = head.replaceAll("%", () => name).replaceAll("#", () => fileName);
    return `--b\r\n${written}${written === "" ? "" : "\r\n"}\r\n${content}\r\n`;
  });

const purpose = '--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n';
const file = `--b\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n${line}\r\n`;

const parts = fc.oneof(
  { weight: 2, arbitrary: fc.array(part, { maxLength: 4 }) },
  { weight: 2, arbitrary: part.map((one) => [purpose, one]) },
  { weight: 2, arbitrary: part.map((one) => [one, file]) },
  { weight: 1, arbitrary: fc.shuffledSubarray([purpose, file, file, purpose]) },
  {
    weight: 1,
    arbitrary: fc.tuple(part, fc.nat(300)).map(([one, count]) => Array.from({ length: count }, () => one).concat(file)),
  },
);

const types = [
  "multipart/form-data; boundary=b",
  'multipart/form-data; boundary="b"',
  "multipart/form-data; boundary=c",
  "multipart/form-data",
  "multipart/form-data;",
  "multipart/form-data; boundary=",
  `multipart/form-data; boundary=${"b".repeat(3000)}`,
  "multipart/form-data; boundary=b; boundary=c",
  "multipart/mixed; boundary=b",
  "Multipart/Form-Data; Boundary=b",
  "application/x-www-form-urlencoded",
  "application/json",
  "",
] as const;

const endings = ["--b--\r\n", "--b--", "", "--b", "--b-", "--b--\r\nbehind", "\r\n--b--\r\n--b--\r\n"] as const;

/** Forms with odd parts, names, boundaries and ends. Accepted files are read back and deleted. */
export const uploads: AttackClass = {
  name: "uploads",
  title: "Forms with odd parts, names, boundaries and ends",
  numCases: 160,
  routes: ["POST /v1/files"],
  prepare: prepareForHttp,
  attacks: () =>
    fc
      .record({
        parts,
        type: fc.oneof(
          { weight: 6, arbitrary: fc.constant(types[0]) },
          { weight: 1, arbitrary: fc.constantFrom(...types) },
        ),
        ending: fc.oneof(
          { weight: 6, arbitrary: fc.constant(endings[0]) },
          { weight: 1, arbitrary: fc.constantFrom(...endings) },
        ),
        cut: fc.oneof({ weight: 8, arbitrary: fc.constant(1000) }, { weight: 1, arbitrary: fc.nat(1000) }),
      })
      .map(({ parts: written, type, ending, cut }): Attack => {
        const whole = Buffer.from(`${written.join("")}${ending}`);
        const body = whole.subarray(0, Math.floor((whole.byteLength * cut) / 1000));
        return {
          route: "POST /v1/files",
          label: `${written.length} parts, ${type.slice(0, 60)}, ${JSON.stringify(ending)}${cut < 1000 ? `, cut after ${cut} ‰` : ""}`,
          shown: shorten(`Content-Type: ${type}\n${JSON.stringify(body.toString())}`, 3000),
          run: (wire) => upload(wire, type, body),
        };
      }),
};

async function upload(wire: Wire, type: string, body: Buffer): Promise<Answer[]> {
  const uploaded = await wire.send({ method: "POST", target: "/v1/files", headers: { "content-type": type }, body });
  if (uploaded.status !== 200) return [uploaded];
  const { id, bytes } = JSON.parse(uploaded.text) as { readonly id: string; readonly bytes: number };
  const content = await wire.get(`/v1/files/${id}/content`);
  if (content.status !== 200 || Buffer.byteLength(content.text) < bytes) {
    throw new Error(`A file of ${bytes} bytes comes back as ${content.status} with ${content.text.length} characters.`);
  }
  const deleted = await wire.send({ method: "DELETE", target: `/v1/files/${id}` });
  const gone = await wire.get(`/v1/files/${id}`);
  if (deleted.status !== 200 || gone.status !== 404) {
    throw new Error(`A file is there after it was deleted: ${deleted.status}, ${gone.status}.`);
  }
  return [uploaded, content, deleted, gone];
}
