/** A format as a user would write it: each line `CALL name {…}` is a call. */
export const shoutedCalls = {
  name: "shouted",
  specialTokens: [],
  createParser() {
    let text = "";
    return {
      append(piece: string) {
        text += piece;
        return [];
      },
      finish() {
        return text.split("\n").flatMap((line) => {
          const [, name, json] = /^CALL ([\w-]+) (\{.*\})$/.exec(line) ?? [];
          if (name === undefined || json === undefined) return [{ type: "text", text: line }];
          return [
            { type: "call", name },
            { type: "arguments", text: json },
          ];
        });
      },
    };
  },
};

export const throwing = {
  name: "throwing",
  specialTokens: [],
  createParser: () => ({
    append(piece: string) {
      if (piece.includes("!")) throw new Error("a bug");
      return [{ type: "text", text: piece }];
    },
    finish: () => [],
  }),
};

export const musing = { name: "musing", start: "<muse>", end: "</muse>" };
export const broken = { name: "broken", createParser: 5 };
export const ambiguous = { name: "ambiguous", start: "<muse>", end: "<<<" };
