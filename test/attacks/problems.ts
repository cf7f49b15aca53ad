/** The wording of problems, by which kinds of problems are distinguished. */

export const COST = "CPU time beyond what its tokens and bytes cost:";
export const LOGGED = "The service logs:";

/** The report for an attack without an answer, for which a neighbour may be the reason. */
export function isAboutSilence(problem: string): boolean {
  return problem.startsWith("No answer");
}

/** Several attacks that each stay below the limit may exceed it together. */
export function isAboutCost(problem: string): boolean {
  return problem.startsWith(COST);
}

/** On a busy machine, the engine's thread may once get ahead of the one that answers. */
export function isAboutSteps(problem: string): boolean {
  return /took \d+ steps, not/.test(problem);
}

/** Equal for two cases of one fault, whatever their numbers, ids and quoted texts are. */
export function kindOf(problem: string): string {
  if (problem.startsWith(LOGGED)) return kindOfLine(problem.slice(LOGGED.length));
  return problem
    .replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "#")
    .replaceAll(/\d+(?:\.\d+)?/g, "#")
    .slice(0, 60);
}

/** An error is identified by where it was thrown. */
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
