/** How pictures, videos and documents look on the page. */
import { create } from "./elements.js";

/** @import { Picture } from "./chat-request.js" */

/** @param {Picture} picture */
export function isVideo({ url }) {
  return url.startsWith("data:video/");
}

/** @param {Picture} picture */
export function isDocument({ url }) {
  return url.startsWith("data:application/pdf");
}

/**
 * A browser shows an empty box for a video that it cannot decode, which the server may be able to.
 *
 * @param {Picture} picture
 * @param {object} options
 * @param {boolean} options.hasControls  Of a video.
 */
export function createPreview(picture, { hasControls }) {
  const { name, url } = picture;
  if (isDocument(picture)) return create("span", { className: "document", textContent: name, title: name });
  if (!isVideo(picture)) return create("img", { src: url, alt: name });
  const video = create("video", { src: url, controls: hasControls, muted: true, preload: "auto", title: name });
  video.setAttribute("aria-label", name);
  return video;
}
