import { createHmac } from "node:crypto";
import { expect, test } from "vitest";

import { createOidcVerifier } from "../../../functions/jobs/push/oidc.ts";
import { createIssuerKey, startOidcIssuer } from "../../support/servers/oidc-issuer.ts";
import type { OidcIssuer, TokenOptions } from "../../support/servers/oidc-issuer.ts";

const hour = 3_600_000;

/** A verifier whose clock the test sets. */
function createVerifier({ url }: OidcIssuer) {
  const clock = { ms: Date.now() };
  return { clock, ...createOidcVerifier({ issuer: url, audience: "fovea", now: () => clock.ms }) };
}

test("accepts tokens of RSA and elliptic-curve keys, and tells whom they are about", async () => {
  await using issuer = await startOidcIssuer();
  const { verify, clock } = createVerifier(issuer);
  const claims = { subject: "110000000000000000001", email: "pusher@project.iam.gserviceaccount.com" };
  expect(await verify(issuer.sign())).toEqual(claims);
  issuer.rotate();
  clock.ms += hour / 2;
  expect(await verify(issuer.sign())).toEqual(claims);
  expect(await verify(issuer.sign({ claims: { aud: ["other", "fovea"] } }))).toEqual(claims);
});

test("tells no e-mail address that the issuer has not verified", async () => {
  await using issuer = await startOidcIssuer();
  const { verify } = createVerifier(issuer);
  expect(await verify(issuer.sign({ claims: { email_verified: false } }))).toMatchObject({ email: null });
  expect(await verify(issuer.sign({ claims: { email_verified: "true" } }))).toMatchObject({ email: null });
});

const seconds = Math.floor(Date.now() / 1000);
const bad: readonly (readonly [string, TokenOptions, RegExp])[] = [
  ["has expired", { claims: { exp: seconds - 120 } }, /has expired/],
  ["never expires", { claims: { exp: undefined } }, /has expired/],
  ["has no valid time yet", { claims: { nbf: seconds + 600 } }, /not valid yet/],
  ["is for another audience", { claims: { aud: "other" } }, /audience is not fovea/],
  ["is for no audience", { claims: { aud: undefined } }, /audience is not fovea/],
  ["is of another issuer", { claims: { iss: "https://accounts.google.com" } }, /issuer is not http/],
  ["has no subject", { claims: { sub: "" } }, /no subject/],
  ["is signed by a stranger", { key: createIssuerKey() }, /none of the issuer's/],
  ["names another algorithm", { header: { alg: "ES256" } }, /algorithm is not RS256/],
  ["is not signed", { header: { alg: "none" } }, /algorithm is not RS256/],
];
test.for(bad)("rejects a token that %s", async ([, options, message]) => {
  await using issuer = await startOidcIssuer();
  const error = createVerifier(issuer).verify(issuer.sign(options));
  await expect(error).rejects.toMatchObject({ status: 401, message: expect.stringMatching(message) as string });
});

test("rejects a token whose claims were changed, and one signed with the public key as a secret", async () => {
  await using issuer = await startOidcIssuer();
  const { verify } = createVerifier(issuer);
  const [header, , signature] = issuer.sign().split(".");
  const claims = issuer.sign({ claims: { sub: "someone else" } }).split(".")[1];
  await expect(verify(`${header}.${claims}.${signature}`)).rejects.toThrow(/signature is wrong/);
  const known = JSON.parse(Buffer.from(header!, "base64url").toString()) as { kid: string };
  const signed = [{ ...known, alg: "HS256" }, JSON.parse(Buffer.from(claims!, "base64url").toString()) as object]
    .map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"))
    .join(".");
  const forged = `${signed}.${createHmac("sha256", "public key").update(signed).digest("base64url")}`;
  await expect(verify(forged)).rejects.toThrow(/algorithm is not RS256/);
});

const noTokens: readonly (readonly [string, string])[] = [
  ["empty text", ""],
  ["one part", "a"],
  ["two parts", "a.b"],
  ["parts that are no JSON", "a.b.c"],
  ["an empty header", "e30.e30."],
  ["parts that are null", "bnVsbA.bnVsbA.a"],
  ["20,000 characters", `${"a".repeat(20_000)}.b.c`],
];
test.for(noTokens)("rejects %s", async ([, token]) => {
  await using issuer = await startOidcIssuer();
  await expect(createVerifier(issuer).verify(token)).rejects.toMatchObject({ status: 401 });
});

test("reads the keys once an hour, and at most every 30 s for tokens with unknown keys", async () => {
  await using issuer = await startOidcIssuer();
  const { verify, clock } = createVerifier(issuer);
  await Promise.all(Array.from({ length: 20 }, () => verify(issuer.sign())));
  await verify(issuer.sign());
  expect(issuer.numReads()).toBe(1);
  const stranger = createIssuerKey();
  for (let count = 0; count < 20; count++) await verify(issuer.sign({ key: stranger })).catch(() => {});
  expect(issuer.numReads()).toBe(1);
  clock.ms += 31_000;
  for (let count = 0; count < 20; count++) await verify(issuer.sign({ key: stranger })).catch(() => {});
  expect(issuer.numReads()).toBe(2);
  clock.ms += hour + 1;
  await verify(issuer.sign({ claims: { exp: seconds + 10 * 3600 } }));
  expect(issuer.numReads()).toBe(3);
});

const failures: readonly (readonly [string, OidcIssuer["answer"]])[] = [
  ["500", 500],
  ["no JSON", "keys"],
  ["no keys", "{}"],
  ["null", "null"],
];
test.for(failures)(
  "asks to try again when the issuer answers %s, and goes on with the keys it has",
  async ([, answer]) => {
    await using issuer = await startOidcIssuer();
    const late = { claims: { exp: seconds + 100 * 3600 } };
    issuer.answer = answer;
    await expect(createVerifier(issuer).verify(issuer.sign())).rejects.toMatchObject({ status: 503 });
    issuer.answer = null;
    const { verify, clock } = createVerifier(issuer);
    await verify(issuer.sign(late));
    issuer.answer = answer;
    clock.ms += 2 * hour;
    expect(await verify(issuer.sign(late))).toMatchObject({ subject: "110000000000000000001" });
    clock.ms += 30 * hour;
    await expect(verify(issuer.sign(late))).rejects.toMatchObject({ status: 503, headers: { "Retry-After": "30" } });
    issuer.answer = null;
    clock.ms += 31_000;
    expect(await verify(issuer.sign(late))).toMatchObject({ subject: "110000000000000000001" });
  },
);

test("asks to try again when the issuer cannot be reached", async () => {
  const issuer = await startOidcIssuer();
  const { verify } = createVerifier(issuer);
  const token = issuer.sign();
  await issuer[Symbol.asyncDispose]();
  await expect(verify(token)).rejects.toMatchObject({ status: 503, code: "issuer_unreachable" });
});
