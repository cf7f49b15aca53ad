/**
 * The turns of a conversation. A turn that is regenerated or edited keeps its first version: turns with the same parent
 * are versions of each other, and one of them is shown. So the turns form a tree, and the page shows one path of it.
 */
import { createId } from "./ids.js";

/** @import { AnsweredQuestion, Question } from "./chat-request.js" */

/**
 * Mutable.
 *
 * @typedef {object} Turn
 * @property {string} id
 * @property {string | null} parentId  The turn before it; null for a first one.
 * @property {Question} question
 * @property {string} answer  Empty while there is none, and where it failed.
 * @property {string | null} ending  Why the answer ended; null while it has not.
 * @property {boolean} isShown  Among its versions; true for one of them.
 */

/**
 * An answer that was stopped counts, also where nothing had come.
 *
 * @param {Pick<Turn, "answer" | "ending">} turn
 */
export function isAnswered({ answer, ending }) {
  return answer !== "" || ending === "stopped";
}

/** Mutable. Parents come before their children in `turns`. */
export class TurnTree {
  /** The model that was last asked. */
  model = "";
  id;
  /** @type {Turn[]} */
  #turns;

  /**
   * @param {string} [id]
   * @param {readonly Turn[]} [turns]
   */
  constructor(id = createId(), turns = []) {
    this.id = id;
    this.#turns = [...turns];
  }

  /** All versions, in the order in which they were asked. */
  get turns() {
    return /** @type {readonly Turn[]} */ (this.#turns);
  }

  /** The turns that are shown, first to last. */
  get path() {
    const path = [];
    for (let turn = this.#shownChild(null); turn !== undefined; turn = this.#shownChild(turn.id)) path.push(turn);
    return path;
  }

  /**
   * The answered questions up to a turn and including it.
   *
   * @param {string | null} turnId  Null for none.
   * @returns {AnsweredQuestion[]}
   */
  historyTo(turnId) {
    const turn = this.#turns.find(({ id }) => id === turnId);
    if (turn === undefined) return [];
    const { parentId, question, answer } = turn;
    return [...this.historyTo(parentId), ...(answer === "" ? [] : [{ ...question, answer }])];
  }

  /**
   * Including the turn itself, oldest first.
   *
   * @param {Turn} turn
   */
  versionsOf(turn) {
    return this.#childrenOf(turn.parentId);
  }

  /**
   * A new version below the parent, which is shown from now on.
   *
   * @param {string | null} parentId
   * @param {Question} question
   */
  add(parentId, question) {
    /** @type {Turn} */
    const turn = { id: createId(), parentId, question, answer: "", ending: null, isShown: true };
    this.#turns.push(turn);
    this.show(turn);
    return turn;
  }

  /** @param {Turn} turn */
  show(turn) {
    for (const version of this.versionsOf(turn)) version.isShown = version === turn;
  }

  /**
   * The turns after it stay, and follow the turn before it. Returns a function that undoes the removal, to be called
   * before any other change.
   *
   * @param {Turn} turn
   */
  remove(turn) {
    const before = this.#turns.map((each) => ({ each, parentId: each.parentId, isShown: each.isShown }));
    const versions = this.versionsOf(turn);
    const next = this.#shownChild(turn.id) ?? versions[versions.indexOf(turn) - 1] ?? versions[1];
    for (const child of this.#childrenOf(turn.id)) child.parentId = turn.parentId;
    this.#turns = this.#turns.filter((each) => each !== turn);
    const shown = turn.isShown ? next : versions.find(({ isShown }) => isShown);
    if (shown !== undefined) this.show(shown);
    return () => {
      this.#turns = before.map(({ each, parentId, isShown }) => Object.assign(each, { parentId, isShown }));
    };
  }

  /** @param {string | null} parentId */
  #childrenOf(parentId) {
    return this.#turns.filter((turn) => turn.parentId === parentId);
  }

  /** @param {string | null} parentId */
  #shownChild(parentId) {
    const children = this.#childrenOf(parentId);
    return children.find(({ isShown }) => isShown) ?? children.at(-1);
  }
}
