/** What the route of pushed events needs. */
import type { PushedJobSource } from "../sources/pushed-job-source.ts";
import type { CheckSender } from "./check-sender.ts";

export interface EventsDependencies {
  readonly source: PushedJobSource;
  readonly checkSender: CheckSender;
  /** Whether results, with refusals, go to places that the settings name. */
  readonly hasSinks: boolean;
}
