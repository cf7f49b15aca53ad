/**
 * Pictures within a text, as text-generation-webui keeps them in its history:
 * `<img src="data:image/jpeg;base64,...">`. JPEG is the form that is written; PNG and WebP are read as well.
 */

/** @typedef {{ readonly type: string, readonly base64: string }} InlinePicture */

const start = '<img src="data:image/';
const middle = ";base64,";
const end = '">';

/**
 * How the base64 of each type begins.
 *
 * @type {Readonly<Record<string, string>>}
 */
const beginnings = { jpeg: "/9j/", png: "iVBORw0KGgo", webp: "UklGR" };

/** The message says what is wrong with a picture; the caller says where. */
export class InlinePictureError extends Error {}

/**
 * Pictures come before the text about them, as in a request.
 *
 * @param {readonly string[]} jpegs  Base64.
 * @param {string} text
 */
export function joinPictures(jpegs, text) {
  return [...jpegs.map((base64) => `${start}jpeg${middle}${base64}${end}`), text].join("");
}

/**
 * Images of other forms (with an address, with other attributes) are text.
 *
 * @param {string} text
 * @returns {{ readonly text: string, readonly pictures: readonly InlinePicture[] }}
 * @throws {InlinePictureError}  If a picture has another type, or is broken.
 */
export function splitPictures(text) {
  // Not a regular expression: it would need a stack as long as a picture.
  const [before = "", ...pieces] = text.split(start);
  /** @type {InlinePicture[]} */
  const pictures = [];
  const texts = pieces.map((piece) => {
    const stop = piece.indexOf('"');
    const mark = piece.indexOf(middle);
    if (!piece.startsWith(end, stop) || mark === -1 || mark > stop) return `${start}${piece}`;
    pictures.push(
      check({ type: piece.slice(0, mark), base64: piece.slice(mark + middle.length, stop) }, pictures.length),
    );
    return piece.slice(stop + end.length);
  });
  return { text: [before, ...texts].join(""), pictures };
}

/**
 * @param {InlinePicture} picture
 * @param {number} index
 */
function check(picture, index) {
  const { type, base64 } = picture;
  const beginning = beginnings[type];
  if (!Object.hasOwn(beginnings, type) || beginning === undefined) {
    const types = Object.keys(beginnings).join(", ");
    throw new InlinePictureError(`picture ${index + 1} has the type ${type.slice(0, 20)}; it must be one of ${types}`);
  }
  if (/[^A-Za-z0-9+/=]/.test(base64) || base64.length % 4 !== 0 || /=[^=]|={3}/.test(base64)) {
    throw new InlinePictureError(`picture ${index + 1} is not valid base64`);
  }
  if (!base64.startsWith(beginning)) throw new InlinePictureError(`picture ${index + 1} is not a ${type} picture`);
  return picture;
}
