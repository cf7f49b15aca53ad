/** How problems are worded, so that those of one kind can be told from others. */

export const COST = "CPU time beyond what its tokens and bytes cost:";
export const LOGGED = "The service logs:";

/** What an attack without an answer is reported with; a neighbour may be the reason. */
export function isAboutSilence(problem: string): boolean {
  return problem.startsWith("No answer");
}

/** Several attacks that each stay below the limit may pass it together. */
export function isAboutCost(problem: string): boolean {
  return problem.startsWith(COST);
}

/** On a busy machine the thread of the engine may get ahead of the one that answers, once. */
export function isAboutSteps(problem: string): boolean {
  return /took \d+ steps, not/.test(problem);
}

/** The same for two cases of one fault, whatever their numbers, ids and quoted texts are. */
export function kindOf(problem: string): string {
  if (problem.startsWith(LOGGED)) return kindOfLine(problem.slice(LOGGED.length));
  return problem
    .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "#")
    .replaceAll(/\d+(?:\.\d+)?/g, "#")
    .slice(0, 60);
}

/** An error is known by where it was thrown. */
function kindOfLine(line: string): string {
  const thrownAt = /\\n\s+at (.*?)\\n/.exec(line)?.[1];
  return (
    thrownAt ??
    line
      .replace(/"time":"[^"]*"/, "")
      .replaceAll(/\d+/g, "#")
      .slice(0, 80)
  );
}
