/** Reads a stream of server-sent events with names. */

export interface NamedEvent {
  /** Null for an event without a name. */
  readonly name: string | null;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Throws for a line that is neither a name, nor data with JSON, nor a comment. */
export async function readEvents(response: Response): Promise<NamedEvent[]> {
  const blocks = (await response.text()).split("\n\n").filter((block) => block !== "" && !block.startsWith(":"));
  return blocks.map((block) => {
    const match = /^(?:event: (?<name>[\w.]+)\n)?data: (?<data>.*)$/.exec(block);
    if (match?.groups === undefined) throw new Error(`Not an event: ${block}`);
    const { name = null, data = "" } = match.groups;
    return { name, data: JSON.parse(data) as Record<string, unknown> };
  });
}
