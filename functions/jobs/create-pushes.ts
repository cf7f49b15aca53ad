/** What the HTTP application needs to take jobs, as the settings say. */
import { toModelList } from "../api/routes/models.ts";
import { roomForBodies } from "../http/body-intake.ts";
import type { Service } from "../service.ts";
import type { Config } from "../settings/config.ts";
import { createSenderCheck } from "./push/check-sender.ts";
import type { EventsDependencies } from "./push/events-dependencies.ts";
import { RunpodJobs } from "./runpod-local/runpod-jobs.ts";
import { createPushedJobSource } from "./sources/pushed-job-source.ts";
import type { PushedJobSource } from "./sources/pushed-job-source.ts";

export interface Pushes {
  /** The source of all jobs that come in over HTTP. */
  readonly source: PushedJobSource;
  /** Null if no events are accepted. */
  readonly events: EventsDependencies | null;
}

/** Null if no jobs come in over HTTP. */
export function createPushes({ jobs, engine, maxBodyBytes }: Config): Pushes | null {
  const { push, results } = jobs;
  const acceptsEvents = push.secret !== null || push.audience !== null;
  if (!acceptsEvents && !jobs.hasRunpodLocalApi) return null;
  const source = createPushedJobSource({
    maxNumWaiting: engine.maxNumWaiting,
    // As much as all bodies that are arriving may hold.
    maxWaitingBytes: roomForBodies(maxBodyBytes),
  });
  const events = acceptsEvents ? { source, checkSender: createSenderCheck(push), hasSinks: results.length > 0 } : null;
  return { source, events };
}

/** The jobs of a RunPod endpoint of one worker: this process. */
export function createRunpodJobs(source: PushedJobSource, config: Config, service: Service): RunpodJobs {
  return new RunpodJobs({ source, listModels: () => toModelList(service, config.servedModelNames) });
}
