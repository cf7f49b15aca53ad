import { createSocket } from "node:dgram";
import type { RemoteInfo } from "node:dgram";
import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { createNameLookup } from "../../../engine/images/name-lookup.ts";

const IPV4 = 1;
const IPV6 = 28;
const NO_SUCH_NAME = 3;
const SERVER_FAILURE = 2;

/** By name: addresses of each type, or a status. */
type Zone = Readonly<Record<string, { readonly [type: number]: readonly Buffer[] } | number>>;

interface NameServer extends AsyncDisposable {
  readonly address: string;
}

/** @param isReady Called with each question. Answers to all of them wait until the promise resolves. */
async function startNameServer(
  zone: Zone,
  isReady: (question: string) => Promise<void> = () => Promise.resolve(),
): Promise<NameServer> {
  const socket = createSocket("udp4");
  const answer = async (query: Buffer, sender: RemoteInfo): Promise<void> => {
    const { name, type, end } = readQuestion(query);
    await isReady(`${name} ${type}`);
    const entry = zone[name] ?? NO_SUCH_NAME;
    const status = typeof entry === "number" ? entry : 0;
    const records = typeof entry === "number" ? [] : (entry[type] ?? []);
    const header = Buffer.from(query.subarray(0, 12));
    header.writeUInt16BE(0x8180 | status, 2);
    header.writeUInt16BE(records.length, 6);
    header.writeUInt32BE(0, 8);
    const answers = records.map((data) => {
      // A pointer to the question's name, type, class, seconds to live, length.
      const record = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 9, 0, data.length]);
      return Buffer.concat([record, data]);
    });
    socket.send(Buffer.concat([header, query.subarray(12, end), ...answers]), sender.port, sender.address);
  };
  socket.on("message", (query, sender) => void answer(query, sender));
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return {
    address: `127.0.0.1:${socket.address().port}`,
    async [Symbol.asyncDispose]() {
      socket.close();
      await once(socket, "close");
    },
  };
}

function readQuestion(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at]!; length > 0; length = query[at]!) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

const zone: Zone = {
  "both.example": { [IPV4]: [Buffer.from([192, 0, 2, 1])], [IPV6]: [Buffer.alloc(16, 0x20)] },
  "old.example": { [IPV4]: [Buffer.from([192, 0, 2, 2]), Buffer.from([192, 0, 2, 3])] },
  "broken.example": SERVER_FAILURE,
};

type LookupAll = (name: string, options: object) => Promise<LookupAddress[]>;

function lookupAt(server: NameServer): LookupAll {
  return promisify(createNameLookup({ servers: [server.address] })) as unknown as LookupAll;
}

test.for([
  ["both.example", 0, ["192.0.2.1 4", "2020:2020:2020:2020:2020:2020:2020:2020 6"]],
  ["both.example", 4, ["192.0.2.1 4"]],
  ["both.example", 6, ["2020:2020:2020:2020:2020:2020:2020:2020 6"]],
  ["old.example", 0, ["192.0.2.2 4", "192.0.2.3 4"]],
  ["localhost", 0, ["127.0.0.1 4"]],
  ["any.LOCALHOST.", 0, ["127.0.0.1 4"]],
] as const)("%s has the addresses of family %s", async ([name, family, expected]) => {
  await using server = await startNameServer(zone);
  const found = await lookupAt(server)(name, { all: true, family });
  expect(found.map(({ address, family: of }) => `${address} ${of}`)).toEqual(expected);
});

test.for([
  ["unknown.example", 0, "ENOTFOUND"],
  ["old.example", 6, "ENOTFOUND"],
  ["broken.example", 0, "EAI_AGAIN"],
] as const)("%s with family %s fails with %s", async ([name, family, code]) => {
  await using server = await startNameServer(zone);
  await expect(lookupAt(server)(name, { all: true, family })).rejects.toMatchObject({ code });
});

test("many lookups wait for their answers at once, and files are read meanwhile", async () => {
  const numLookups = 64;
  const questions = new Set<string>();
  const allAsked = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  await using server = await startNameServer(zone, (question) => {
    questions.add(question);
    if (questions.size === 2 * numLookups) allAsked.resolve();
    return released.promise;
  });
  const lookup = lookupAt(server);
  const lookups = Promise.allSettled(
    Array.from({ length: numLookups }, (_, index) => lookup(`unknown-${index}.example`, { all: true })),
  );
  await allAsked.promise;
  expect((await readFile(import.meta.filename)).byteLength).toBeGreaterThan(0);
  released.resolve();
  expect((await lookups).every(({ status }) => status === "rejected")).toBe(true);
});
