/**
 * The turns of a conversation: each is asked once, and is streamed, stopped or failed. Answers become the history of
 * the next turn.
 */
import { Answer } from "./answer.js";
import { createChatRequest } from "./chat-request.js";
import { ServerError } from "./server-client.js";
import { createTurnView } from "./turn-view.js";

/** @import { ChatRequest, Question } from "./chat-request.js" */
/** @import { ServerClient } from "./server-client.js" */
/** @import { TurnView } from "./turn-view.js" */

/**
 * Mutable.
 *
 * @typedef {object} Turn
 * @property {Question} question
 * @property {ChatRequest} request
 * @property {string} answer  Empty where it failed.
 * @property {TurnView} view
 */

/** @typedef {{ readonly model: string, readonly systemPrompt: string, readonly fields: Readonly<Record<string, unknown>> }} Decoding */

export class Conversation {
  /** @type {Turn[]} */
  #turns = [];
  /** For the streaming answer. */
  #controller = /** @type {AbortController | null} */ (null);
  #client;
  #list;
  #on;

  /**
   * @param {object} options
   * @param {ServerClient} options.client
   * @param {HTMLElement} options.list
   * @param {object} options.on
   * @param {() => void} options.on.change  An answer has begun or ended, or a turn has gone.
   * @param {() => void} options.on.grow  The last answer has become longer on the page.
   * @param {(text: string) => void} options.on.answered
   * @param {(error: ServerError) => void} options.on.failed
   * @param {() => void} options.on.retry
   * @param {(question: Question) => void} options.on.edit  The turn is removed, and its question will be edited.
   * @param {(request: ChatRequest) => void} options.on.code
   */
  constructor({ client, list, on }) {
    this.#client = client;
    this.#list = list;
    this.#on = on;
  }

  get isStreaming() {
    return this.#controller !== null;
  }

  get isEmpty() {
    return this.#turns.length === 0;
  }

  /**
   * As `question` would be asked now.
   *
   * @param {Question} question
   * @param {Decoding} decoding
   */
  toRequest(question, decoding) {
    const history = this.#turns
      .filter(({ answer }) => answer !== "")
      .map(({ question, answer }) => ({ question: question.question, pictures: question.pictures, answer }));
    return createChatRequest({ ...decoding, question, history });
  }

  /**
   * Resolves when the answer is over, however it ended.
   *
   * @param {Question} question
   * @param {Decoding} decoding
   */
  async ask(question, decoding) {
    const request = this.toRequest(question, decoding);
    this.#turns.at(-1)?.view.settle();
    const view = createTurnView(question, {
      grow: this.#on.grow,
      retry: this.#on.retry,
      edit: () => this.#edit(turn),
      code: () => this.#on.code(turn.request),
    });
    /** @type {Turn} */
    const turn = { question, request, answer: "", view };
    this.#turns.push(turn);
    this.#list.append(view.element);
    await this.#run(turn);
  }

  /**
   * Asks the last question again.
   *
   * @param {Decoding} decoding
   */
  async retry(decoding) {
    const turn = this.#turns.at(-1);
    if (turn === undefined || this.isStreaming) return;
    turn.answer = "";
    turn.request = this.toRequest(turn.question, decoding);
    await this.#run(turn);
  }

  /** The server frees the answer's place when the connection closes. */
  stop() {
    this.#controller?.abort();
  }

  clear() {
    this.stop();
    this.#turns = [];
    this.#list.replaceChildren();
  }

  /** @param {Turn} turn */
  async #run(turn) {
    const { view } = turn;
    const controller = new AbortController();
    const answer = new Answer(performance.now());
    this.#controller = controller;
    view.start();
    this.#on.change();
    try {
      for await (const chunk of this.#client.streamChat(turn.request, controller.signal)) {
        view.append(answer.add(chunk, performance.now()));
      }
      turn.answer = answer.text;
      view.finish(answer.figures, answer.finishReason);
      this.#on.answered(answer.text);
    } catch (error) {
      if (controller.signal.aborted) {
        turn.answer = answer.text;
        view.finish(answer.figures, "stopped");
      } else {
        const failure = error instanceof ServerError ? error : new ServerError(String(error));
        view.fail(failure);
        this.#on.failed(failure);
      }
    } finally {
      if (this.#controller === controller) this.#controller = null;
      this.#on.change();
    }
  }

  /** @param {Turn} turn */
  #edit(turn) {
    this.#turns = this.#turns.filter((other) => other !== turn);
    turn.view.element.remove();
    this.#on.edit(turn.question);
    this.#on.change();
  }
}
