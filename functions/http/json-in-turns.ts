/** Writes large answers as JSON without occupying the thread for as long as all of their text takes. */
import { setImmediate as nextTurn } from "node:timers/promises";

/** Elements of a list that are written at once: tokens with 20 alternatives take a few milliseconds. */
const ELEMENTS_PER_TURN = 256;
/** Lists further inside are short, or parts of such an element. */
const MAX_DEPTH = 5;

/** The text of `JSON.stringify`. Takes a turn of the event loop for each part of a long list. */
export async function jsonInTurns(value: object): Promise<string> {
  return write(value, 0);
}

async function write(value: unknown, depth: number): Promise<string> {
  if (typeof value !== "object" || value === null || depth === MAX_DEPTH) return JSON.stringify(value) ?? "null";
  if ("toJSON" in value && typeof value.toJSON === "function") return JSON.stringify(value);
  if (Array.isArray(value)) {
    return value.length > ELEMENTS_PER_TURN ? writeLongList(value) : writeList(value, depth);
  }
  const members: string[] = [];
  for (const [name, member] of Object.entries(value)) {
    if (member !== undefined) members.push(`${JSON.stringify(name)}:${await write(member, depth + 1)}`);
  }
  return `{${members.join(",")}}`;
}

async function writeList(list: readonly unknown[], depth: number): Promise<string> {
  const elements: string[] = [];
  for (const element of list) elements.push(await write(element, depth + 1));
  return `[${elements.join(",")}]`;
}

async function writeLongList(list: readonly unknown[]): Promise<string> {
  const parts: string[] = [];
  for (let start = 0; start < list.length; start += ELEMENTS_PER_TURN) {
    if (start > 0) await nextTurn();
    parts.push(JSON.stringify(list.slice(start, start + ELEMENTS_PER_TURN)).slice(1, -1));
  }
  return `[${parts.join(",")}]`;
}
