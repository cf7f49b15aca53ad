/** Hubs that refuse a checkpoint, or answer something else. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { commitOf, sha256 } from "../../../support/servers/hub-server.ts";
import type { HubRepositoryContent } from "../../../support/servers/hub-server.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import { server, content, tiny, wantedFiles, resolveIn, errorOf, useTinyRepository } from "./tiny-repository.ts";

useTinyRepository();

test.for<[string, Partial<HubRepositoryContent> | null, string, string | null, string]>([
  ["an unknown repository", null, tiny, null, "has no repository org/tiny. A private one needs a token."],
  ["a token without access", null, tiny, "weak", "has no repository org/tiny. The token may not have access to it."],
  ["a private repository", { isPrivate: true }, tiny, null, "has no repository org/tiny. A private one needs a token."],
  ["a wrong token", {}, tiny, "unknown", "rejects the token: give a valid one."],
  ["a gated repository", { isGated: true }, tiny, null, "org/tiny is gated: accept its conditions at http://"],
  ["a gated repository", { isGated: true }, tiny, "without-access", "; the present token has no access."],
  ["an unknown revision", {}, `hf://${tiny}@v9`, null, "org/tiny has no revision v9."],
])("%s: %o, %s with the token %s", async ([, changes, reference, token, message]) => {
  await using folder = await createTemporaryFolder();
  server.tokens.add("weak").add("without-access");
  if (changes === null) server.repositories.clear();
  else Object.assign(content, changes);
  expect(await errorOf(resolveIn(folder.path, reference, { changes: { token } }))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringContaining(message),
  });
});

test.for(["hf_tök", "hf_a b", "hf_a\nb"])("a token that no header can have is rejected: %j", async (token) => {
  await using folder = await createTemporaryFolder();
  const error = await errorOf(resolveIn(folder.path, tiny, { changes: { token } }));
  expect(error).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringContaining("The token has a character that no token of the hub has"),
  });
  expect(String(error)).not.toContain(token);
});

test.for(["model-00001-of-00002.safetensors", "config.json"])(
  "other bytes than those of the hash are rejected: %s",
  async (name) => {
    await using folder = await createTemporaryFolder();
    const { bytes, isLarge } = content.files.get(name)!;
    server.disturb = ({ method, path }) =>
      method === "GET" && path.endsWith(isLarge ? sha256(bytes) : `/${name}`)
        ? { bytes: (body) => Buffer.from(body.map((byte) => byte ^ 1)) }
        : undefined;
    expect(await errorOf(resolveIn(folder.path))).toMatchObject({
      code: "invalid_checkpoint",
      message: expect.stringContaining(`The bytes of ${name} do not have the hash`),
    });
    const snapshot = join(folder.path, "hub/models--org--tiny/snapshots", commitOf(content));
    expect(await readdir(snapshot)).toEqual(["model.safetensors.index.json"]);
    server.disturb = null;
    expect((await readdir(await resolveIn(folder.path))).sort()).toEqual(wantedFiles);
  },
);

interface Listed {
  readonly path: string;
  size: number;
  lfs?: { size: number };
}

const weightsName = "model-00001-of-00002.safetensors";

test.for<[string, number, RegExp]>([
  ["more", 100, /lists model-00001-of-00002.safetensors with \d+ bytes and serves \d+ bytes/],
  ["fewer", -100, /lists model-00001-of-00002.safetensors with \d+ bytes and serves \d+ bytes/],
  ["more than the disk has", 2 ** 50, /needs [\d.]+ MiB more, and the disk of the hub cache has [\d.]+ MiB/],
])("a hub that lists %s bytes than a file has is rejected", async ([, difference, message]) => {
  await using folder = await createTemporaryFolder();
  server.disturb = ({ path }) => {
    if (!path.includes("/tree/")) return;
    return {
      json: (body: Listed[]) =>
        body.map((entry) =>
          entry.path === weightsName ? { ...entry, lfs: { ...entry.lfs, size: entry.lfs!.size + difference } } : entry,
        ),
    };
  };
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({ message: expect.stringMatching(message) });
});

test("a small file with another size than listed is rejected", async () => {
  await using folder = await createTemporaryFolder();
  server.disturb = ({ path }) =>
    path.includes("/tree/")
      ? { json: (body: Listed[]) => body.map((entry) => ({ ...entry, size: entry.size + 1 })) }
      : undefined;
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringMatching(/^The hub lists [\w.]+ with \d+ bytes and serves \d+ bytes\.$/),
  });
});

test.for<[string, (body: never) => unknown]>([
  ["a commit that is a path", () => ({ sha: "../../../../outside" })],
  ["no commit", () => ({})],
  ["a hash that is a path", (body: object[]) => body.map((entry) => ({ ...entry, oid: "../../outside" }))],
  ["a negative size", (body: object[]) => body.map((entry) => ({ ...entry, size: -1 }))],
])("an answer with %s is rejected", async ([, json]) => {
  await using folder = await createTemporaryFolder();
  server.disturb = ({ path }) => (path.includes("/revision/") === json.length < 1 ? { json } : undefined);
  expect(await errorOf(resolveIn(folder.path))).toMatchObject({
    code: "invalid_configuration",
    setting: "hubEndpoint",
    message: expect.stringContaining("does not answer like a hub; check its address."),
  });
});
