/** Rules by which a model describes how its items change a prompt. They are resolved for each item. */
import { EngineError, invariant } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import type { PromptText } from "./prompt-text.ts";
import type { ItemPromptUpdate, PromptContent, PromptSequence, PromptTarget } from "./resolved-prompt-update.ts";
import { findSequence } from "./sequence-search.ts";

/** Text or token ids. */
type Sequence = string | readonly number[];

type Target = Sequence | PromptTarget;

/** Content in which not every token receives an embedding. */
export interface PromptUpdateDetails {
  readonly full: Sequence;
  /** Which tokens of `full` receive an embedding, as many as there are tokens. Without this and `features`, all do. */
  readonly isEmbed?: (fullTokenIds: readonly number[]) => readonly boolean[];
  /** The contiguous part of `full` that receives them. */
  readonly features?: Sequence;
}

type Content = Sequence | PromptUpdateDetails;

interface UpdateRule {
  /** The function receives the place of the item among those of the prompt, from 0. */
  readonly target: Target | ((index: number) => Target);
  /** The function receives the item's index among those passed to `promptUpdates`. */
  readonly content: Content | ((itemIndex: number) => Content);
}

/** The content replaces the target: the k-th occurrence for the k-th item. */
export interface PromptReplacement extends UpdateRule {
  readonly mode: "replacement";
}

/** The content comes right after the target; that of all items after its first occurrence. */
export interface PromptInsertion extends UpdateRule {
  readonly mode: "insertion";
}

export type PromptUpdate = PromptReplacement | PromptInsertion;

/** Targets that are positions, not tokens. */
export const promptIndexTargets = {
  start: (): PromptTarget => ({ kind: "start" }),
  prefix: (sequence: Sequence): PromptTarget => ({ kind: "prefix", sequence: toPromptSequence(sequence) }),
  end: (): PromptTarget => ({ kind: "end" }),
};

/** `isEmbed` for details in which the tokens with these ids receive the embeddings. */
export function selectTokenIds(...tokenIds: readonly number[]): NonNullable<PromptUpdateDetails["isEmbed"]> {
  const selected = new Set(tokenIds);
  return (full) => full.map((tokenId) => selected.has(tokenId));
}

/**
 * Resolves the rule for one item, except for a target that `targetAt` resolves for each prompt. Text in contents is
 * encoded without special tokens around it.
 */
export async function resolvePromptUpdate(
  { mode, target, content }: PromptUpdate,
  itemIndex: number,
  promptText: PromptText,
): Promise<ItemPromptUpdate> {
  if (!modes.has(mode)) throw wrongRule("mode", mode, '"replacement" or "insertion"');
  return {
    mode,
    target: typeof target === "function" ? null : toPromptTarget(target),
    content: await toPromptContent(typeof content === "function" ? content(itemIndex) : content, promptText),
  };
}

/** The target of an item by its place among those of the prompt; null if the rule has the same for all. */
export function targetAt({ target }: PromptUpdate, index: number): PromptTarget | null {
  return typeof target === "function" ? toPromptTarget(target(index)) : null;
}

function toPromptTarget(target: Target): PromptTarget {
  if (typeof target === "string" || isTokenIds(target)) return toPromptSequence(target);
  if (!targetKinds.has((target as Partial<PromptTarget> | null | undefined)?.kind)) {
    throw wrongRule("target", target, "token ids, a text or one of promptIndexTargets");
  }
  return target;
}

function toPromptSequence(sequence: Sequence): PromptSequence {
  return typeof sequence === "string" ? { kind: "text", text: sequence } : { kind: "tokens", tokenIds: sequence };
}

async function toPromptContent(content: Content, promptText: PromptText): Promise<PromptContent> {
  const toTokenIds = async (sequence: Sequence): Promise<readonly number[]> =>
    typeof sequence === "string" ? promptText.encode(sequence) : sequence;
  if (typeof content === "string" || isTokenIds(content)) return { full: await toTokenIds(content), isEmbed: null };
  const given: unknown = (content as Partial<PromptUpdateDetails> | null | undefined)?.full;
  if (typeof given !== "string" && !Array.isArray(given)) {
    throw wrongRule("content", content, "token ids, a text or an object whose full is one of them");
  }
  const full = await toTokenIds(content.full);
  if (content.isEmbed !== undefined) {
    const isEmbed = content.isEmbed(full);
    invariant(isEmbed.length === full.length, `a mask of ${isEmbed.length} for ${full.length} tokens of content`);
    return { full, isEmbed };
  }
  if (content.features === undefined) return { full, isEmbed: null };
  return { full, isEmbed: maskOf(await toTokenIds(content.features), full) };
}

function maskOf(features: readonly number[], full: readonly number[]): readonly boolean[] {
  const start = findSequence(full, features, 0);
  invariant(
    start !== null,
    `the ${features.length} features are not a contiguous part of the content's ${full.length} tokens`,
  );
  return full.map((_, index) => index >= start && index < start + features.length);
}

/** Rules in JavaScript are not checked by a compiler. */
const modes: ReadonlySet<unknown> = new Set<PromptUpdate["mode"]>(["replacement", "insertion"]);
const targetKinds: ReadonlySet<unknown> = new Set<PromptTarget["kind"]>(["tokens", "text", "start", "prefix", "end"]);

function wrongRule(field: keyof PromptUpdate, value: unknown, expected: string): EngineError {
  return new EngineError(
    "internal",
    `The model's promptUpdates has a rule with the ${field} ${shown(value)}; expected ${expected}.`,
  );
}

function isTokenIds(value: Exclude<Target | Content, string>): value is readonly number[] {
  return Array.isArray(value);
}
