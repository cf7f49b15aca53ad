/** Progress of a slow part of preparing weights. */

export interface WeightProgress {
  readonly task: string;
  readonly completed: number;
  readonly total: number;
  readonly unit: "bytes";
}
