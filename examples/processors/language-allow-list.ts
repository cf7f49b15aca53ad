/**
 * Allows only tokens in some scripts, for models that slip into another language.
 *
 *     LOGITS_PROCESSOR_PATH=examples LOGITS_PROCESSORS=processors.language-allow-list:LanguageAllowList npm start
 *     curl ... -d '{"prompt": "a", "vllm_xargs": {"allowed_scripts": ["Latin", "Greek"]}}'
 *
 * Names are Unicode's (https://www.unicode.org/Public/UCD/latest/ucd/PropertyValueAliases.txt): Chinese is Han, Japanese
 * is Han, Hiragana and Katakana. Digits, punctuation and white space are always allowed. A token of incomplete UTF-8 is
 * allowed if its first byte can start a character of an allowed script. Languages of one script cannot be told apart.
 */
import { LogitsProcessor } from "fovea";
import type { BatchUpdate, DeviceName, EngineConfig, Logits, SamplingParams } from "fovea";

import { readTokenBytes } from "./token-bytes.ts";

const MAX_SCRIPTS = 16;
/** Masks that are kept; each has one byte per token of the vocabulary. */
const MAX_MASKS = 32;

/** Of one checkpoint. Kept for the process: a processor is created again when the engine has to find a failed row. */
class ScriptMasks {
  readonly #tokenBytes: readonly (Uint8Array | null)[];
  /** By the names of the scripts: 1 for each token that is allowed. */
  readonly #masks = new Map<string, Uint8Array>();

  constructor(model: string) {
    this.#tokenBytes = readTokenBytes(model);
  }

  maskFor(scripts: readonly string[]): Uint8Array {
    const name = scripts.toSorted().join();
    const known = this.#masks.get(name);
    if (known !== undefined) return known;
    const isAllowed = createTest(scripts);
    const mask = Uint8Array.from(this.#tokenBytes, (bytes) => Number(bytes === null || isAllowed(bytes)));
    if (this.#masks.size === MAX_MASKS) this.#masks.delete(this.#masks.keys().next().value!);
    this.#masks.set(name, mask);
    return mask;
  }
}

const masksOfModel = new Map<string, ScriptMasks>();

export class LanguageAllowList extends LogitsProcessor {
  readonly #masks: ScriptMasks;
  readonly #maskOfRow = new Map<number, Uint8Array>();

  constructor(config: EngineConfig, device: DeviceName, options: Readonly<Record<string, unknown>>) {
    super(config, device, options);
    this.#masks = masksOfModel.get(config.model) ?? new ScriptMasks(config.model);
    masksOfModel.set(config.model, this.#masks);
  }

  static override validateParams(params: SamplingParams): void {
    scriptsOf(params);
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    if (batchUpdate === null) return;
    for (const row of batchUpdate.removed) this.#maskOfRow.delete(row);
    for (const { index, params } of batchUpdate.added) {
      const scripts = scriptsOf(params);
      this.#put(index, scripts.length === 0 ? undefined : this.#masks.maskFor(scripts));
    }
    for (const { from, to, directionality } of batchUpdate.moved) {
      const [moved, replaced] = [this.#maskOfRow.get(from), this.#maskOfRow.get(to)];
      this.#put(to, moved);
      this.#put(from, directionality === "swap" ? replaced : undefined);
    }
  }

  override apply(logits: Logits): Logits {
    for (const [index, mask] of this.#maskOfRow) {
      const row = logits.row(index);
      for (let tokenId = 0; tokenId < row.length; tokenId++) {
        if (mask[tokenId] === 0) row[tokenId] = Number.NEGATIVE_INFINITY;
      }
    }
    return logits;
  }

  #put(row: number, mask: Uint8Array | undefined): void {
    if (mask === undefined) this.#maskOfRow.delete(row);
    else this.#maskOfRow.set(row, mask);
  }
}

function scriptsOf({ extraArgs }: SamplingParams): readonly string[] {
  const names = extraArgs.allowed_scripts ?? [];
  if (typeof names !== "object" || names.length > MAX_SCRIPTS) {
    throw new Error(`allowed_scripts must be a list of at most ${MAX_SCRIPTS} names of scripts.`);
  }
  return names.map((name) => {
    if (typeof name === "string" && isScript(name)) return name;
    throw new Error(
      `allowed_scripts must contain Unicode's names of scripts such as Latin, got ${JSON.stringify(name)}.`,
    );
  });
}

function isScript(name: string): boolean {
  if (!/^[A-Za-z_]+$/.test(name)) return false;
  try {
    return new RegExp(`\\p{Script=${name}}`, "u").test("") || true;
  } catch {
    return false;
  }
}

/** Whether a token's bytes are text in these scripts, or may be a part of such text. */
function createTest(scripts: readonly string[]): (bytes: Uint8Array) => boolean {
  const classes = [...scripts, "Common", "Inherited"].map((name) => `\\p{Script=${name}}`).join("");
  const allowed = new RegExp(`^[${classes}]*$`, "u");
  const decoder = new TextDecoder("utf-8", { fatal: true });
  const canStart = Array.from({ length: 256 }, (_, byte) =>
    charactersFrom(byte).some((character) => allowed.test(character)),
  );
  return (bytes) => {
    try {
      return allowed.test(decoder.decode(bytes));
    } catch {
      return bytes.every((byte) => byte < 0xc0 || canStart[byte]);
    }
  };
}

/** By length in bytes: the first character, the bits of its first byte, and how many characters are skipped. */
const sequences = [
  { lowest: 0xf0, firstPoint: 0x10000, shift: 18, step: 16 },
  { lowest: 0xe0, firstPoint: 0x800, shift: 12, step: 1 },
  { lowest: 0xc0, firstPoint: 0x80, shift: 6, step: 1 },
] as const;

/** The characters whose UTF-8 starts with the byte; a sixteenth of those of four bytes, which suffices for a script. */
function charactersFrom(byte: number): string[] {
  const sequence = sequences.find(({ lowest }) => byte >= lowest);
  if (sequence === undefined) return [];
  const { lowest, firstPoint, shift, step } = sequence;
  const start = (byte - lowest) << shift;
  const characters: string[] = [];
  for (let point = Math.max(start, firstPoint); point < start + (1 << shift) && point <= 0x10ffff; point += step) {
    if (point < 0xd800 || point > 0xdfff) characters.push(String.fromCodePoint(point));
  }
  return characters;
}
