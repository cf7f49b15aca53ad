/** Answers to jobs that have just ended, for senders that gave up waiting and send the job again. */

/** Pub/Sub waits up to 10 minutes for an answer, and then as long between two deliveries. */
const KEPT_MS = 25 * 60 * 1000;
const MAX_ANSWERS = 10_000;
const MAX_CHARACTERS = 32 * 1024 ** 2;

export interface RecentAnswer {
  readonly status: number;
  readonly text: string;
}

/** Mutable. The oldest answers go first. */
export class RecentAnswers {
  readonly #answers = new Map<string, RecentAnswer & { readonly until: number }>();
  #numCharacters = 0;

  add(jobId: string, answer: RecentAnswer): void {
    this.#remove(jobId);
    this.#answers.set(jobId, { ...answer, until: performance.now() + KEPT_MS });
    this.#numCharacters += answer.text.length;
    for (const [oldest, { until }] of this.#answers) {
      const isRoom = this.#answers.size <= MAX_ANSWERS && this.#numCharacters <= MAX_CHARACTERS;
      if (isRoom && until > performance.now()) break;
      this.#remove(oldest);
    }
  }

  get(jobId: string): RecentAnswer | null {
    const answer = this.#answers.get(jobId);
    return answer !== undefined && answer.until > performance.now() ? answer : null;
  }

  #remove(jobId: string): void {
    const answer = this.#answers.get(jobId);
    if (answer === undefined) return;
    this.#answers.delete(jobId);
    this.#numCharacters -= answer.text.length;
  }
}
