/** The server's example pictures, each with questions that one click asks. */
import { create, find, fromTemplate } from "./elements.js";
import { readPicture } from "./picture-tray.js";

/** @import { Picture, Question } from "./chat-request.js" */
/** @import { Example } from "./server-client.js" */

const QUESTIONS_SHOWN_AT_FIRST = 3;

/**
 * @param {object} options
 * @param {readonly Example[]} options.examples
 * @param {HTMLElement} options.list
 * @param {(question: Question, moreQuestions: readonly string[]) => unknown} options.onAsk
 */
export function showExamples({ examples, list, onAsk }) {
  const items = examples.map((example) => {
    const item = fromTemplate("sample-template", HTMLLIElement);
    const image = find(item, "img", HTMLImageElement);
    image.src = `playground/${example.picture}`;
    image.alt = `Example picture ${nameOf(example)}`;
    const buttons = example.questions.slice(0, QUESTIONS_SHOWN_AT_FIRST).map((question) =>
      createQuestionButton(question, async () => {
        onAsk({ question, pictures: [await fetchPicture(image.src, nameOf(example))] }, example.questions);
      }),
    );
    find(item, ".sample-questions", HTMLElement).append(...buttons);
    return item;
  });
  list.replaceChildren(...items);
}

/**
 * An item of a list of questions.
 *
 * @param {string} question
 * @param {() => void | Promise<void>} onClick
 */
export function createQuestionButton(question, onClick) {
  const button = create("button", { type: "button", className: "chip", textContent: question });
  button.addEventListener("click", () => void onClick());
  return create("li", {}, [button]);
}

/** @param {Example} example */
function nameOf({ picture }) {
  return picture.slice(picture.lastIndexOf("/") + 1);
}

/**
 * @param {string} url
 * @param {string} name
 * @returns {Promise<Picture>}
 */
async function fetchPicture(url, name) {
  const response = await fetch(url);
  const { url: dataUrl } = await readPicture(await response.blob());
  return { name, url: dataUrl };
}
