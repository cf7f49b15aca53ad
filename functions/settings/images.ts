/** Settings of images: their limits, and the hosts that they are fetched from. */
import { defaultDecodeLimits, defaultImageLimits, defaultVideoLimits } from "../../engine/contract/default-limits.ts";
import { limitsOfPrompt } from "./json-values.ts";
import { setting } from "./setting.ts";
import { boolean, bytes, commaSeparated, integer, MEBIBYTE, oneOf, seconds } from "./values.ts";

export const inlineImageNames = ["completions", "all", "off"] as const;
export type InlineImages = (typeof inlineImageNames)[number];

export const inlineImagesSetting = setting(
  "INLINE_IMAGES",
  oneOf(inlineImageNames),
  'Where <img src="data:image/jpeg;base64,..."> in a text is a picture: completions, all (chat messages too), or off.',
  { default: "completions" },
);

/** sharp decodes no more by default: 16,383 x 16,383 pixels. */
const MAX_DECODED_PIXELS = 16_383 ** 2;
/** A smaller limit would reject images of 256 x 256 pixels. */
const MIN_DECODE_COST = 256 ** 2;

export const imageLimitSettings = {
  perPrompt: setting(
    "LIMIT_MM_PER_PROMPT",
    limitsOfPrompt(),
    'Largest numbers of images and videos per prompt. With {"image": {"count": 4, "width": 512, "height": 512}}, check plans memory for images of that size.',
    {
      default: `{"image": ${defaultImageLimits.maxImagesPerPrompt}, "video": ${defaultVideoLimits.maxVideosPerPrompt}}`,
    },
  ),
  maxImageBytes: setting("MAX_IMAGE_BYTES", bytes(1024, 1024 * MEBIBYTE), "Largest encoded image in bytes.", {
    default: `${defaultImageLimits.maxImageBytes / MEBIBYTE}MiB`,
  }),
  maxImagePixels: setting(
    "MAX_IMAGE_PIXELS",
    integer(1, MAX_DECODED_PIXELS, "pixels"),
    "Largest number of pixels per image, checked before decoding.",
    { default: defaultImageLimits.maxImagePixels },
  ),
  maxDecodeCost: setting(
    "MAX_IMAGE_DECODE_COST",
    integer(MIN_DECODE_COST),
    "Largest cost of decoding one image, in pixels of plain RGB. Pixels of AVIF, 16-bit and progressive JPEG images cost several.",
    { default: defaultDecodeLimits.maxDecodeCost },
  ),
  maxRequestDecodeCost: setting(
    "MAX_REQUEST_DECODE_COST",
    integer(MIN_DECODE_COST),
    "Largest cost of decoding all images of one request. Cached images cost nothing.",
    { default: defaultDecodeLimits.maxRequestDecodeCost },
  ),
  decodeTimeoutMs: setting(
    "IMAGE_DECODE_TIMEOUT_SECONDS",
    seconds(1, 600),
    "Timeout for decoding one image, rounded up to whole seconds.",
    { default: defaultDecodeLimits.decodeTimeoutMs / 1000 },
  ),
  fetchTimeoutMs: setting(
    "IMAGE_FETCH_TIMEOUT_SECONDS",
    seconds(0.1, 600),
    "Timeout for fetching one image, redirects included.",
    { default: defaultImageLimits.fetchTimeoutMs / 1000 },
  ),
};

export const imageSourceSettings = {
  /** An empty list allows all public hosts. */
  allowedDomains: setting(
    "ALLOWED_MEDIA_DOMAINS",
    commaSeparated("host names separated by commas", (entry) => /^[^\s/:@]+$/.test(entry)),
    "Hosts from which images may be fetched, separated by commas; default: all public hosts.",
    { unset: [] },
  ),
  /** `host:port`. */
  allowedPrivateHosts: setting(
    "ALLOWED_PRIVATE_HOSTS",
    commaSeparated("host:port entries separated by commas", (entry) => /^[^\s/@]+:\d+$/.test(entry)),
    "host:port entries of private networks from which images may be fetched too; default: none.",
    { unset: [] },
  ),
  allowHttp: setting("ALLOW_HTTP_IMAGES", boolean(), "Fetch images over http:// too, not only over https://.", {
    default: false,
  }),
};
