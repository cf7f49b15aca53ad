/** Settings of jobs from queues. */
import { setting } from "./setting.ts";
import {
  anyText,
  boolean,
  commaSeparated,
  httpUrl,
  integer,
  isS3OrHttpUrl,
  issuerUrl,
  seconds,
  serviceAddress,
  webhookSecret,
} from "./values.ts";

export const jobSettings = {
  /** Its scheme names the kind of queue; functions/jobs/sources/ reads the rest. */
  source: setting(
    "JOB_SOURCE",
    serviceAddress(),
    "Queue to take jobs from: sqs://host/account/queue, redis://host:port/0?queue=name (BullMQ), amqp://host/vhost?queue=name (RabbitMQ), nats://host:port/stream/consumer, pubsub://project/subscription, or runpod for the queue of the RunPod endpoint that this process is a worker of. Default: none.",
  ),
  /** Apart from the address, so that deployments can name its queue without a secret. */
  username: setting(
    "JOB_SOURCE_USERNAME",
    anyText(),
    "User of the queue in JOB_SOURCE. Default: the user in the address.",
  ),
  password: setting(
    "JOB_SOURCE_PASSWORD",
    anyText(),
    "Password of the queue in JOB_SOURCE. Default: the password in the address.",
    { secret: true },
  ),
  results: setting(
    "JOB_RESULTS",
    commaSeparated("s3://bucket/prefix and https:// addresses without credentials separated by commas", isS3OrHttpUrl),
    "Where results of jobs go: s3://bucket/prefix stores one object per job, an https:// address is a webhook. Separated by commas. Queues that carry answers return results as well.",
    { unset: [] },
  ),
  allowedTargets: setting(
    "JOB_ALLOWED_TARGETS",
    commaSeparated("s3://bucket/prefix and https:// addresses without credentials separated by commas", isS3OrHttpUrl),
    "Addresses that jobs may name themselves: prefixes of S3 for input and output files, and of webhooks. Separated by commas. Default: none.",
    { unset: [] },
  ),
  webhookSecret: setting(
    "JOB_WEBHOOK_SECRET",
    webhookSecret(),
    "Secret that signs webhooks as Standard Webhooks do: whsec_ and Base64 of 24 to 64 bytes. Default: no signature.",
    { secret: true },
  ),
  maxDeliveries: setting(
    "JOB_MAX_DELIVERIES",
    integer(1, 1000, "deliveries"),
    "Number of times that a queue hands out a job before the job is rejected. It includes deliveries to workers that ended.",
    { default: 5 },
  ),
  leaseMs: setting(
    "JOB_LEASE_SECONDS",
    seconds(5, 43_200),
    "Time after which the queue gives the job of a silent worker to another one. Workers renew it three times as often.",
    { default: 60 },
  ),
  /** Who may push events to /events: senders with the secret, or with an ID token. Neither: there is no such route. */
  push: {
    secret: setting(
      "JOB_PUSH_SECRET",
      anyText(),
      "Secret that senders of events to POST /events send as bearer token or X-Api-Key. Default: none.",
      { secret: true },
    ),
    audience: setting(
      "JOB_PUSH_AUDIENCE",
      anyText(),
      "Accepts events at POST /events with ID tokens of OpenID Connect for this audience. JOB_PUSH_SENDERS must be set. Default: none.",
    ),
    issuer: setting("JOB_PUSH_ISSUER", issuerUrl(), "Issuer of the ID tokens of senders.", {
      default: "https://accounts.google.com",
    }),
    senders: setting(
      "JOB_PUSH_SENDERS",
      commaSeparated("e-mail addresses and subjects separated by commas"),
      "Verified e-mail addresses or subjects of ID tokens that may push events, separated by commas.",
      { unset: [] },
    ),
  },
  hasRunpodLocalApi: setting(
    "RUNPOD_LOCAL_API",
    boolean(),
    "Serve /run, /runsync, /status, /stream and /cancel as a RunPod endpoint does, also below /v2/{endpoint}, to try clients of RunPod.",
    { default: false },
  ),
  /** RunPod sets them in the workers of queue-based endpoints. The URLs carry keys. */
  runpod: {
    jobUrl: setting("RUNPOD_WEBHOOK_GET_JOB", httpUrl(), "Set by RunPod: where workers take jobs.", { secret: true }),
    outputUrl: setting("RUNPOD_WEBHOOK_POST_OUTPUT", httpUrl(), "Set by RunPod: where results go.", { secret: true }),
    streamUrl: setting("RUNPOD_WEBHOOK_POST_STREAM", httpUrl(), "Set by RunPod: where chunks of answers go.", {
      secret: true,
    }),
    pingUrl: setting("RUNPOD_WEBHOOK_PING", httpUrl(), "Set by RunPod: where heartbeats go.", { secret: true }),
    apiKey: setting("RUNPOD_AI_API_KEY", anyText(), "Set by RunPod: key of the worker.", { secret: true, unset: "" }),
    workerId: setting("RUNPOD_POD_ID", anyText(), "Set by RunPod: id of the worker."),
    pingMs: setting(
      "RUNPOD_PING_INTERVAL",
      integer(100, 600_000, "milliseconds"),
      "Set by RunPod: milliseconds between heartbeats.",
      { default: 10_000 },
    ),
  },
};
