/** The API key: requested if the server requires one, kept for this tab and nowhere else. */
import { find } from "./elements.js";

const storageName = "fovea-api-key";

/** @param {() => void} onKey  A new key is there to be tried. */
export function createApiKey(onKey) {
  const form = find(document, "#key-form", HTMLFormElement);
  const input = find(form, "#key", HTMLInputElement);
  const problem = find(form, "#key-problem", HTMLElement);
  let key = readStored();

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const entered = input.value.trim();
    const [unsendable] = entered.match(/[^\x20-\xff]/u) ?? [];
    if (unsendable !== undefined) {
      problem.textContent = `A key cannot contain ${unsendable}: HTTP headers have no such character.`;
      input.select();
      return;
    }
    key = entered;
    store(key);
    onKey();
  });

  return {
    read: () => key,

    /** @param {string} message  What the server said to the key that it was sent, if it was. */
    ask(message) {
      problem.textContent = key === null ? "" : message;
      form.hidden = false;
      input.focus();
      input.select();
    },

    accept() {
      form.hidden = true;
      input.value = "";
    },
  };
}

/** @returns {string | null} */
function readStored() {
  try {
    return sessionStorage.getItem(storageName);
  } catch {
    // Storage is off: the key lasts until the page is left.
    return null;
  }
}

/** @param {string} key */
function store(key) {
  try {
    sessionStorage.setItem(storageName, key);
  } catch {
    // As above.
  }
}
