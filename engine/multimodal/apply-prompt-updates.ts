/**
 * Expands the placeholders of a prompt, in whichever way it spells them, into as many tokens as their items have
 * features.
 */
import { findPlaceholders } from "./find-placeholders.ts";
import { placeUpdates } from "./place-updates.ts";
import type { ElementTarget, PlaceableUpdate } from "./place-updates.ts";
import type { PlaceholderRange } from "./placeholder.ts";
import type { PromptText } from "./prompt-text.ts";
import type { ItemUpdates, PromptSequence, PromptTarget } from "./resolved-prompt-update.ts";

/** See `MultiModalProcessor.joinTokens`. */
export type JoinTokens = (this: void, left: number, right: number) => number | null;

export interface UpdatedPrompt {
  readonly tokenIds: readonly number[];
  /** By item; null for an item whose targets are not in the prompt. */
  readonly placeholders: readonly (PlaceholderRange | null)[];
}

/**
 * Applies `placeUpdates` to the tokens of the prompt. Ranges are recorded while applying, so tokens of the prompt that
 * look like content are never mistaken for it.
 */
export async function applyPromptUpdates(
  promptTokenIds: readonly number[],
  items: ItemUpdates,
  promptText: PromptText,
  joinTokens?: JoinTokens,
): Promise<UpdatedPrompt> {
  const placeable = await placeableUpdates(items, async (target) => ({
    kind: "sequence",
    elements: target.kind === "tokens" ? target.tokenIds : await promptText.encode(target.text),
  }));
  const updated = new PromptBuilder(items, joinTokens);
  let position = 0;
  for (const { item, alternative, keepUntil, resumeAt } of placeUpdates(promptTokenIds, placeable)) {
    updated.appendTokens(promptTokenIds, position, keepUntil);
    updated.appendContent(item, alternative);
    position = resumeAt;
  }
  updated.appendTokens(promptTokenIds, position, promptTokenIds.length);
  return updated.prompt;
}

/**
 * Like `applyPromptUpdates`, but on the text of the prompt and of the targets, for prompts whose tokens spell a target
 * differently than its own encoding. The text between two items is encoded separately, so that no token extends into an
 * item's content.
 */
export async function applyPromptUpdatesToText(
  promptTokenIds: readonly number[],
  items: ItemUpdates,
  promptText: PromptText,
  joinTokens?: JoinTokens,
): Promise<UpdatedPrompt> {
  const text = promptText.decode(promptTokenIds);
  const placeable = await placeableUpdates(items, async (target) => {
    // An empty text matches everywhere in a text, but nowhere in tokens.
    if (target.kind === "text" && target.text === "") return { kind: "anywhere" };
    const targetText = target.kind === "text" ? target.text : promptText.decode(target.tokenIds);
    return { kind: "sequence", elements: codeUnitsOf(targetText) };
  });
  const updated = new PromptBuilder(items, joinTokens);
  const appendText = async (start: number, end: number): Promise<void> => {
    if (start === end) return;
    const tokenIds = await promptText.encode(text.slice(start, end));
    updated.appendTokens(tokenIds, 0, tokenIds.length);
  };
  let position = 0;
  for (const { item, alternative, keepUntil, resumeAt } of placeUpdates(codeUnitsOf(text), placeable)) {
    await appendText(position, keepUntil);
    updated.appendContent(item, alternative);
    position = resumeAt;
  }
  await appendText(position, text.length);
  return updated.prompt;
}

/** Converts the updates to the elements of the prompt. */
async function placeableUpdates(
  items: ItemUpdates,
  elementsOf: (sequence: PromptSequence) => Promise<ElementTarget>,
): Promise<readonly (readonly PlaceableUpdate[])[]> {
  const elementTargetOf = async (target: PromptTarget): Promise<ElementTarget> => {
    switch (target.kind) {
      case "start":
      case "end":
        return target;
      case "prefix": {
        const prefix = await elementsOf(target.sequence);
        return prefix.kind === "sequence" ? { kind: "prefix", elements: prefix.elements } : { kind: "start" };
      }
      case "tokens":
      case "text":
        return elementsOf(target);
      default:
        return target satisfies never;
    }
  };
  // Items usually share their targets.
  const known = new Map<PromptTarget, ElementTarget>();
  const placeable: PlaceableUpdate[][] = [];
  for (const alternatives of items) {
    const updates: PlaceableUpdate[] = [];
    for (const { mode, target } of alternatives) {
      const elementTarget = known.get(target) ?? (await elementTargetOf(target));
      known.set(target, elementTarget);
      updates.push({ mode, target: elementTarget });
    }
    placeable.push(updates);
  }
  return placeable;
}

/** Collects the tokens of a prompt and the positions of its items. Mutable. */
class PromptBuilder {
  readonly #items: ItemUpdates;
  readonly #tokenIds: number[] = [];
  readonly #placeholders: (PlaceholderRange | null)[];
  readonly #joinTokens: JoinTokens | null;
  /** Whether the last token is the end of an item's content. */
  #endsWithContent = false;

  constructor(items: ItemUpdates, joinTokens: JoinTokens | undefined) {
    this.#items = items;
    this.#joinTokens = joinTokens ?? null;
    this.#placeholders = items.map(() => null);
  }

  get prompt(): UpdatedPrompt {
    return { tokenIds: this.#tokenIds, placeholders: this.#placeholders };
  }

  /** Tokens of the prompt. */
  appendTokens(tokenIds: readonly number[], start: number, end: number): void {
    if (start === end) return;
    const first = this.#endsWithContent && this.#joinsWith(tokenIds[start]!) ? start + 1 : start;
    this.#append(tokenIds, first, end);
    this.#endsWithContent = false;
  }

  /** A first token that joins with the token before it is not part of the placeholder: it has no embedding. */
  appendContent(item: number, alternative: number): void {
    const { full, isEmbed } = this.#items[item]![alternative]!.content;
    const start = isEmbed?.[0] === false && this.#joinsWith(full[0]!) ? 1 : 0;
    const embedded = start === 0 || isEmbed === null ? isEmbed : isEmbed.slice(start);
    this.#placeholders[item] = { offset: this.#tokenIds.length, length: full.length - start, isEmbed: embedded };
    this.#append(full, start, full.length);
    this.#endsWithContent = isEmbed?.at(-1) === false;
  }

  /** Replaces the last token by the one that it forms with the next. Returns false if they stay apart. */
  #joinsWith(next: number): boolean {
    const last = this.#tokenIds.at(-1);
    const joined = last === undefined ? null : (this.#joinTokens?.(last, next) ?? null);
    if (joined === null) return false;
    this.#tokenIds[this.#tokenIds.length - 1] = joined;
    return true;
  }

  /** Without spread, because prompts can exceed the maximum number of arguments. */
  #append(tokenIds: readonly number[], start: number, end: number): void {
    for (let index = start; index < end; index += 1) this.#tokenIds.push(tokenIds[index]!);
  }
}

function codeUnitsOf(text: string): number[] {
  return Array.from({ length: text.length }, (_, index) => text.charCodeAt(index));
}

export interface ExpansionOptions {
  readonly promptText: PromptText;
  /** Whether the prompt may already contain the features of the items. */
  readonly mayBeExpanded: boolean;
  /** Whether to search the prompt's text for places that its tokens lack. */
  readonly mayMatchText: boolean;
  readonly joinTokens?: JoinTokens | undefined;
}

/**
 * Works on tokens first, which stay unchanged between the items. If an item has no place among them, all updates are
 * done again on the text, because a target's tokens can depend on its neighbours. Items without a place have no
 * placeholder in the result.
 */
export async function expandPrompt(
  tokenIds: readonly number[],
  items: ItemUpdates,
  { promptText, mayBeExpanded, mayMatchText, joinTokens }: ExpansionOptions,
): Promise<UpdatedPrompt> {
  if (mayBeExpanded) {
    const placeholders = findPlaceholders(tokenIds, [items])[0]!;
    if (isComplete({ tokenIds, placeholders })) return { tokenIds, placeholders };
  }
  const updated = await applyPromptUpdates(tokenIds, items, promptText, joinTokens);
  if (isComplete(updated) || !mayMatchText) return updated;
  return applyPromptUpdatesToText(tokenIds, items, promptText, joinTokens);
}

function isComplete({ placeholders }: UpdatedPrompt): boolean {
  return placeholders.every((placeholder) => placeholder !== null);
}
