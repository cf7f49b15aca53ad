/** Files that a request brings in base64, or refers to. */

/** Base64 has no colon, and neither have the ids of uploaded files. */
const scheme = /^[a-z][a-z\d+.-]*:/i;

export function isReference(text: string): boolean {
  return scheme.test(text.slice(0, 64));
}

/** @param mediaType Of base64; may be empty. */
export function toReference(text: string, mediaType: string): string {
  return isReference(text) ? text : `data:${mediaType};base64,${text}`;
}
