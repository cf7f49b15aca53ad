/** Describes an image reference in error messages: short, and without secrets. */

const MAX_ECHOED_CHARACTERS = 60;

/**
 * At most 60 characters of a reference, quoted. Credentials, query strings (presigned URLs contain signatures) and
 * fragments of web addresses are left out. For an address that does not parse, only the scheme is shown, because a
 * password could be anywhere in it.
 */
export function describeReference(reference: string): string {
  const shown = withoutSecrets(reference.slice(0, 4096));
  const printable = shown.replace(/[^\x20-\x7e]/g, "?");
  return printable.length > MAX_ECHOED_CHARACTERS
    ? `"${printable.slice(0, MAX_ECHOED_CHARACTERS)}…"`
    : `"${printable}"`;
}

function withoutSecrets(reference: string): string {
  if (!/^\s*https?:/i.test(reference)) return reference;
  if (!URL.canParse(reference)) return `${reference.trimStart().split(":", 1)[0]}:…`;
  const url = new URL(reference);
  return `${url.protocol}//${url.host}${url.pathname}`;
}
