/** Rights of replicas on AWS, no more than the settings need, as statements of IAM policies. */
import type { Deployment } from "./deployment.ts";

export interface Statement {
  readonly Effect: "Allow";
  readonly Action: readonly string[];
  readonly Resource: string | readonly string[];
  readonly Condition?: object;
}

export function policy(statements: readonly Statement[]): string {
  return JSON.stringify({ Version: "2012-10-17", Statement: statements });
}

/** Lets one service of AWS take the role. */
export function trustOf(service: string): string {
  return JSON.stringify({
    Version: "2012-10-17",
    Statement: [{ Effect: "Allow", Principal: { Service: service }, Action: "sts:AssumeRole" }],
  });
}

/** Objects that are uploaded in parts, and deleted when they are done with. */
const objectActions = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"] as const;

/** For the model, batches, results and files on S3, and for the queue of jobs. */
export function statementsOf({ environment, asyncOutput, config }: Deployment): Statement[] {
  return [
    ...readable(environment.MODEL),
    ...writable(environment.BATCH_STORE, objectActions),
    ...writable(asyncOutput ?? undefined, ["s3:PutObject"]),
    // Workers look for the result of an earlier delivery before they compute a job.
    ...config.jobs.results.flatMap((target) => writable(target, ["s3:GetObject", "s3:PutObject"])),
    ...config.jobs.allowedTargets.flatMap(filesAt),
    ...queueStatements(config.jobs.source),
  ];
}

/** Bucket and prefix of `s3://bucket/prefix`; null for anything else. */
export function readS3(address: string | undefined): { readonly bucket: string; readonly prefix: string } | null {
  const match = /^s3:\/\/([^/]+)\/?(.*?)\/*$/i.exec(address ?? "");
  return match === null ? null : { bucket: match[1]!, prefix: match[2]! };
}

function readable(address: string | undefined): Statement[] {
  return writable(address, ["s3:GetObject"]);
}

function writable(address: string | undefined, actions: readonly string[]): Statement[] {
  const place = readS3(address);
  if (place === null) return [];
  const { bucket, prefix } = place;
  const below = prefix === "" ? "*" : `${prefix}/*`;
  return [
    { Effect: "Allow", Action: actions, Resource: `arn:aws:s3:::${bucket}/${below}` },
    listing(bucket, prefix === "" ? [] : [prefix, below]),
  ];
}

/** Jobs name files in a folder, or a single file, whose parts are beside it until it is complete. */
function filesAt(address: string): Statement[] {
  const place = readS3(address);
  if (place === null) return [];
  const { bucket, prefix } = place;
  const keys = prefix === "" ? ["*"] : [prefix, `${prefix}/*`, `${prefix}.parts/*`];
  return [
    { Effect: "Allow", Action: objectActions, Resource: keys.map((key) => `arn:aws:s3:::${bucket}/${key}`) },
    listing(bucket, prefix === "" ? [] : keys),
  ];
}

/** Without it, S3 does not say that an object does not exist. No keys: the whole bucket. */
function listing(bucket: string, keys: readonly string[]): Statement {
  return {
    Effect: "Allow",
    Action: ["s3:ListBucket"],
    Resource: `arn:aws:s3:::${bucket}`,
    ...(keys.length > 0 && { Condition: { StringLike: { "s3:prefix": keys } } }),
  };
}

export interface SqsQueue {
  readonly region: string;
  readonly account: string;
  readonly name: string;
}

/** Null if jobs come from elsewhere, or from a server of SQS's protocol that is not AWS. */
export function readSqsQueue(source: string | null): SqsQueue | null {
  const match = /^sqs:\/\/sqs\.([a-z0-9-]+)\.amazonaws\.com\/(\d+)\/([\w-]+(?:\.fifo)?)/.exec(source ?? "");
  return match === null ? null : { region: match[1]!, account: match[2]!, name: match[3]! };
}

/** Messages that no replica could complete go there. */
export function deadLettersOf({ name }: SqsQueue): string {
  return name.endsWith(".fifo") ? name.replace(/\.fifo$/, "-dead-letters.fifo") : `${name}-dead-letters`;
}

/** Replies go to queues that a message names, so those are granted by hand. */
function queueStatements(source: string | null): Statement[] {
  const queue = readSqsQueue(source);
  if (queue === null) return [];
  const arn = (name: string) => `arn:aws:sqs:${queue.region}:${queue.account}:${name}`;
  return [
    {
      Effect: "Allow",
      Action: ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"],
      Resource: arn(queue.name),
    },
    { Effect: "Allow", Action: ["sqs:GetQueueUrl", "sqs:SendMessage"], Resource: arn(deadLettersOf(queue)) },
  ];
}
