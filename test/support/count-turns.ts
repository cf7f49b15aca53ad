/** Counts the turns that the event loop makes during some work: what other work could have run in. */
export async function countTurns(work: () => Promise<unknown>): Promise<number> {
  let numTurns = 0;
  let immediate = setImmediate(count);
  function count(): void {
    numTurns += 1;
    immediate = setImmediate(count);
  }
  try {
    await work();
    return numTurns;
  } finally {
    clearImmediate(immediate);
  }
}
