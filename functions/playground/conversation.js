/**
 * The conversation on the page: shows one path of its turns, asks questions, and streams one answer at a time. Answers
 * become the history of the turns after them.
 */
import { Answer } from "./answer.js";
import { createChatRequest } from "./chat-request.js";
import { ServerError } from "./server-client.js";
import { isAnswered, TurnTree } from "./turn-tree.js";
import { createTurnView } from "./turn-view.js";

/** @import { ChatRequest, Question } from "./chat-request.js" */
/** @import { ServerClient } from "./server-client.js" */
/** @import { Turn } from "./turn-tree.js" */
/** @import { TurnView } from "./turn-view.js" */

/** @typedef {{ readonly model: string, readonly systemPrompt: string, readonly fields: Readonly<Record<string, unknown>> }} Decoding */

export class Conversation {
  #tree = new TurnTree();
  /** Kept as long as the conversation is open, with the tokens of its answers. */
  #views = /** @type {Map<Turn, TurnView>} */ (new Map());
  /** As they were sent from this page. */
  #requests = /** @type {WeakMap<Turn, ChatRequest>} */ (new WeakMap());
  /** For the streaming answer. */
  #controller = /** @type {AbortController | null} */ (null);
  #client;
  #list;
  #prepare;
  #on;

  /**
   * @param {object} options
   * @param {ServerClient} options.client
   * @param {HTMLElement} options.list
   * @param {(question: Question, insteadOf: Turn) => Decoding | null} options.prepare  Null if the question cannot be
   *   asked now; then the page says why.
   * @param {object} options.on
   * @param {() => void} options.on.change  An answer has begun or ended, or other turns are shown.
   * @param {() => void} options.on.asked  The buttons of the turn may be gone.
   * @param {() => void} options.on.grow  The last answer has become longer on the page.
   * @param {(text: string) => void} options.on.answered
   * @param {(error: ServerError) => void} options.on.failed
   * @param {(turn: Turn) => void} options.on.edit
   * @param {(undo: () => void) => void} options.on.removed  A turn, which `undo` brings back.
   * @param {(turn: Turn, sent: ChatRequest | null) => void} options.on.code  With the request if this page sent it.
   * @param {(tree: TurnTree) => void} options.on.store  The turns have changed.
   */
  constructor({ client, list, prepare, on }) {
    this.#client = client;
    this.#list = list;
    this.#prepare = prepare;
    this.#on = on;
  }

  get tree() {
    return this.#tree;
  }

  get isStreaming() {
    return this.#controller !== null;
  }

  get isEmpty() {
    return this.#tree.path.length === 0;
  }

  /**
   * As `question` would be asked now.
   *
   * @param {Question} question
   * @param {Decoding} decoding
   * @param {Turn | null} [insteadOf]  As another version of that turn; null for a question after the last turn.
   */
  toRequest(question, decoding, insteadOf = null) {
    return createChatRequest({ ...decoding, question, history: this.#tree.historyTo(this.#parentFor(insteadOf)) });
  }

  /**
   * Resolves when the answer is over, however it ended.
   *
   * @param {Question} question
   * @param {Decoding} decoding
   * @param {Turn | null} [insteadOf]
   */
  async ask(question, decoding, insteadOf = null) {
    await this.#run(this.#tree.add(this.#parentFor(insteadOf), question), decoding);
  }

  /** The server frees the answer's place when the connection closes. */
  stop() {
    this.#controller?.abort();
  }

  /** @param {TurnTree} [tree]  A new conversation if left out. */
  open(tree = new TurnTree()) {
    this.stop();
    this.#controller = null;
    this.#tree = tree;
    this.#views.clear();
    this.#show();
  }

  /**
   * Removes the turn if nothing but its question would be lost, so that the question can be asked in its place.
   *
   * @param {Turn} turn
   * @returns {boolean}  Whether it was removed.
   */
  tryWithdraw(turn) {
    const isOnlyVersion = this.#tree.versionsOf(turn).length === 1;
    if (isAnswered(turn) || !isOnlyVersion || this.#tree.path.at(-1) !== turn) return false;
    this.#tree.remove(turn);
    this.#changed();
    return true;
  }

  /** @param {Turn} turn */
  focusEdit(turn) {
    this.#viewOf(turn).focusAction("edit");
  }

  /** @param {Turn | null} insteadOf */
  #parentFor(insteadOf) {
    return insteadOf === null ? (this.#tree.path.at(-1)?.id ?? null) : insteadOf.parentId;
  }

  /**
   * @param {Turn} turn
   * @param {Decoding} decoding
   */
  async #run(turn, decoding) {
    const tree = this.#tree;
    const controller = new AbortController();
    const answer = new Answer(performance.now());
    const request = createChatRequest({
      ...decoding,
      question: turn.question,
      history: tree.historyTo(turn.parentId),
    });
    tree.model = decoding.model;
    this.#requests.set(turn, request);
    this.#controller = controller;
    const view = this.#viewOf(turn);
    view.start();
    this.#changed();
    this.#on.asked();
    try {
      for await (const chunk of this.#client.streamChat(request, controller.signal)) {
        view.appendThinking(chunk.choices[0]?.delta.reasoning_content ?? "");
        view.append(answer.add(chunk, performance.now()));
      }
      end(turn, answer.text, answer.finishReason ?? "stop");
      view.finish(answer.figures, turn.ending);
      this.#on.answered(answer.text);
    } catch (error) {
      if (controller.signal.aborted) {
        end(turn, answer.text, "stopped");
        view.finish(answer.figures, turn.ending);
      } else {
        const failure = error instanceof ServerError ? error : new ServerError(String(error));
        end(turn, "", "failed");
        view.fail(failure);
        this.#on.failed(failure);
      }
    } finally {
      if (this.#controller === controller) this.#controller = null;
      // Another conversation may have been opened since.
      if (this.#tree === tree) this.#show();
      this.#on.store(tree);
    }
  }

  /**
   * Asks again: as another version, or in place if there is no answer.
   *
   * @param {Turn} turn
   */
  #regenerate(turn) {
    const decoding = this.isStreaming ? null : this.#prepare(turn.question, turn);
    if (decoding === null) return;
    void this.#run(isAnswered(turn) ? this.#tree.add(turn.parentId, turn.question) : turn, decoding);
  }

  /**
   * @param {Turn} turn
   * @param {-1 | 1} direction
   */
  #step(turn, direction) {
    const versions = this.#tree.versionsOf(turn);
    const next = versions[versions.indexOf(turn) + direction];
    if (next === undefined) return;
    this.#tree.show(next);
    this.#changed();
    if (direction === 1) this.#viewOf(next).focusAction("next", "previous");
    else this.#viewOf(next).focusAction("previous", "next");
  }

  /** @param {Turn} turn */
  #remove(turn) {
    const tree = this.#tree;
    const undo = tree.remove(turn);
    this.#changed();
    this.#on.removed(() => {
      undo();
      this.#on.store(tree);
      if (this.#tree !== tree) return;
      this.#show();
      this.#viewOf(turn).focusAction("remove");
    });
  }

  #changed() {
    this.#show();
    this.#on.store(this.#tree);
  }

  /** Elements that stay are not moved, so that they keep the focus. */
  #show() {
    const path = this.#tree.path;
    path.forEach((turn, index) => {
      const versions = this.#tree.versionsOf(turn);
      const view = this.#viewOf(turn);
      view.place({
        number: index + 1,
        version: versions.indexOf(turn) + 1,
        numVersions: versions.length,
        isLocked: this.isStreaming,
      });
      const current = this.#list.children[index] ?? null;
      if (current !== view.element) this.#list.insertBefore(view.element, current);
    });
    while (this.#list.children.length > path.length) this.#list.lastElementChild?.remove();
    this.#on.change();
  }

  /** @param {Turn} turn */
  #viewOf(turn) {
    const existing = this.#views.get(turn);
    if (existing !== undefined) return existing;
    const view = createTurnView(turn, {
      grow: this.#on.grow,
      regenerate: () => this.#regenerate(turn),
      edit: () => this.#on.edit(turn),
      remove: () => this.#remove(turn),
      previous: () => this.#step(turn, -1),
      next: () => this.#step(turn, 1),
      code: () => this.#on.code(turn, this.#requests.get(turn) ?? null),
    });
    this.#views.set(turn, view);
    return view;
  }
}

/**
 * @param {Turn} turn
 * @param {string} answer
 * @param {string} ending
 */
function end(turn, answer, ending) {
  turn.answer = answer;
  turn.ending = ending;
}
