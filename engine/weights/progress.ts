/** How far a slow part of getting weights ready is. */

export interface WeightProgress {
  readonly task: string;
  readonly completed: number;
  readonly total: number;
  readonly unit: "bytes";
}
