/** Settings of S3, and names that the AWS SDK reads from the environment by itself. */
import { setting } from "./setting.ts";
import { anyText, httpUrl } from "./values.ts";

export const s3Settings = {
  region: setting("AWS_REGION", anyText(), "Region of S3 buckets; default: us-east-1 where an endpoint is set."),
  endpoint: setting(
    "AWS_ENDPOINT_URL_S3",
    httpUrl(),
    "URL of an S3 service other than Amazon's. Its buckets are addressed by path.",
  ),
  endpointOfAllServices: setting(
    "AWS_ENDPOINT_URL",
    httpUrl(),
    "The same for all AWS services; AWS_ENDPOINT_URL_S3 takes precedence.",
  ),
};

/** Listed so that they are known names and are masked. The service does not read them. */
export const awsSdkSettings = {
  profile: setting("AWS_PROFILE", anyText(), "Read by the AWS SDK, as are all other AWS names."),
  accessKeyId: setting("AWS_ACCESS_KEY_ID", anyText(), "Read by the AWS SDK.", { secret: true }),
  secretAccessKey: setting("AWS_SECRET_ACCESS_KEY", anyText(), "Read by the AWS SDK.", { secret: true }),
  sessionToken: setting("AWS_SESSION_TOKEN", anyText(), "Read by the AWS SDK.", { secret: true }),
};
