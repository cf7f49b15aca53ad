/** Objects in the store that were changed by hand: they harm nothing but themselves. */
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI, { toFile } from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const endpoint = "/v1/completions";

let folder: TemporaryFolder;
let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  service = await startService({ BATCH_STORE: folder.path });
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

async function upload(): Promise<string> {
  const line = { custom_id: "a", method: "POST", url: endpoint, body: { prompt: "a", max_tokens: 1 } };
  const file = await toFile(Buffer.from(JSON.stringify(line)), "in.jsonl");
  return (await client.files.create({ file, purpose: "batch" })).id;
}

async function complete(): Promise<OpenAI.Batch> {
  const input_file_id = await upload();
  const { id } = await client.batches.create({ input_file_id, endpoint, completion_window: "24h" });
  await expect.poll(async () => (await client.batches.retrieve(id)).status).toBe("completed");
  return client.batches.retrieve(id);
}

/** The path of the folder's only object with the id. */
async function pathOf(folderName: string, id: string): Promise<string> {
  const name = (await readdir(join(folder.path, folderName))).find((each) => each.includes(id));
  return join(folder.path, folderName, name!);
}

const numLogged = (text: string): number =>
  service
    .log()
    .split("\n")
    .filter((line) => line.includes(text)).length;

const damages: [string, (text: string) => string][] = [
  ["cut off", (text) => text.slice(0, text.length / 2)],
  ["empty", () => ""],
  ["another thing", () => "[1, 2]"],
  ["lacking a field", (text) => text.replace('"object"', '"subject"')],
  ["no UTF-8", () => "\u{FFFD}\u0000"],
];

describe.for(damages)("a record that is %s", ([, damage]) => {
  test("of a file is left out of lists, logged once, and unknown by its id", async () => {
    const [good, bad] = [await upload(), await upload()];
    const path = await pathOf("files", bad);
    await writeFile(path, damage(await readFile(path, "utf8")));
    for (let time = 0; time < 3; time++) {
      const ids = (await client.files.list()).data.map(({ id }) => id);
      expect(ids).toContain(good);
      expect(ids).not.toContain(bad);
    }
    const unknown = { status: 404, code: "record_damaged", param: "id" };
    await expect(client.files.retrieve(bad)).rejects.toMatchObject(unknown);
    await expect(client.files.content(bad)).rejects.toMatchObject(unknown);
    await expect(
      client.batches.create({ input_file_id: bad, endpoint, completion_window: "24h" }),
    ).rejects.toMatchObject({ status: 400, param: "input_file_id" });
    expect(numLogged(`files/all.${bad}`)).toBe(1);
    expect(await client.files.delete(bad)).toMatchObject({ deleted: true });
    await expect(client.files.retrieve(bad)).rejects.toMatchObject({ status: 404, code: "not_found" });
    await expect(client.files.content(good)).resolves.toBeDefined();
  });

  test("of a batch is left out of lists, logged once, and unknown by its id", async () => {
    const [good, bad] = [await complete(), await complete()];
    const path = await pathOf("endings", bad.id);
    await writeFile(path, damage(await readFile(path, "utf8")));
    for (let time = 0; time < 3; time++) {
      const ids = (await client.batches.list({ limit: 100 })).data.map(({ id }) => id);
      expect(ids).toContain(good.id);
      expect(ids).not.toContain(bad.id);
    }
    const unknown = { status: 404, code: "record_damaged", param: "id" };
    await expect(client.batches.retrieve(bad.id)).rejects.toMatchObject(unknown);
    await expect(client.batches.cancel(bad.id)).rejects.toMatchObject(unknown);
    expect(numLogged(`endings/all.${bad.id}`)).toBe(1);
    await expect(client.files.content(bad.output_file_id!)).resolves.toBeDefined();
  });
});

test("a damaged state of a running batch does not matter once the batch has ended", async () => {
  const batch = await complete();
  await writeFile(await pathOf("batches", batch.id), "{");
  expect(await client.batches.retrieve(batch.id)).toEqual(batch);
  expect((await client.batches.list({ limit: 100 })).data).toContainEqual(batch);
});

test("a page has the requested length, whatever is damaged before it", async () => {
  const ids = [await upload(), await upload(), await upload(), await upload()];
  for (const id of ids.slice(2)) await writeFile(await pathOf("files", id), "{");
  const page = await client.files.list({ limit: 2 });
  expect(page.data.map(({ id }) => id)).toEqual([ids[1], ids[0]]);
});
