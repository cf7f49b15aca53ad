/** The places of videos in conversations. */
import { expect, test } from "vitest";

import type { ContentPart, VideoPart } from "../../../engine/contract/generation-request.ts";
import { renderChat } from "../../../engine/input/chat-prompt.ts";
import type { FramesPart, OpenedVideos } from "../../../engine/input/video-loader.ts";
import type { ShownVideo } from "../../../engine/multimodal/multimodal-processor.ts";
import { ChatTemplate } from "../../../engine/text/chat-template.ts";

const printing = new ChatTemplate("{% for m in messages %}[{{ m.content }}]{% endfor %}", {});
const walking = new ChatTemplate(
  "{% for m in messages %}[{% for p in m.content %}{{ '<image>' if p.type == 'image' else '(<video>)' if p.type == 'video' else p.text }}|{% endfor %}]{% endfor %}",
  {},
);
const knowingImagesOnly = new ChatTemplate(
  "{% for m in messages %}{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}|{% endfor %}{% endfor %}",
  {},
);

const text = (value: string): ContentPart => ({ type: "text", text: value });
const image: ContentPart = { type: "image", reference: "i" };
const long: VideoPart = { type: "video", reference: "long" };
const short: VideoPart = { type: "video", reference: "short" };

const shown: ShownVideo = {
  width: 2,
  height: 2,
  frameIndices: [0, 1, 2],
  frameSeconds: [0, 1, 2],
  numFrames: 3,
  framesPerSecond: 1,
  durationSeconds: 3,
};

function itemsOf(count: number): FramesPart[] {
  const file = { contentHash: "", parameter: "prompt.videos[0]", decodeFrames: async () => [] };
  return Array.from({ length: count }, (_, index) => ({
    type: "frames",
    origin: "video",
    file,
    item: { video: shown, index },
    frameIndices: [index],
    isOfVideo: true,
    options: null,
  }));
}

const opened: OpenedVideos = new Map([
  [long, { items: itemsOf(3), text: "<1 s><image><2 s><image><3 s><image>" }],
  [short, { items: itemsOf(1), text: "<image>" }],
]);

interface Places {
  readonly placeholder: string | null;
  readonly placesVideosInText?: boolean;
  readonly numberText?: (index: number) => string;
}

function render(template: ChatTemplate, content: readonly ContentPart[], places: Places) {
  const messages = [{ role: "user", content }] as const;
  const options = { template, imagePlaceholder: "<image>", videos: { ...places, opened } };
  return renderChat({ messages, addGenerationPrompt: true }, options);
}

const ofVideos = { placeholder: "<video>" };
const ofImages = { placeholder: null };

test("the text of a video takes the place that the template writes for it", () => {
  const { text: rendered, literal } = render(walking, [text("a"), long, image, short, text("b")], ofVideos);
  expect(rendered).toBe("[a|(<1 s><image><2 s><image><3 s><image>)|<image>|(<image>)|b|]");
  expect(literal).toEqual([]);
});

test("each video has a number of its own, also one that is shown twice", () => {
  const numbered = { ...ofVideos, numberText: (index: number) => `#${index} ` };
  expect(render(walking, [short, text("a"), short, long], numbered).text).toBe(
    "[(#0 <image>)|a|(#1 <image>)|(#2 <1 s><image><2 s><image><3 s><image>)|]",
  );
});

test("a placeholder that a message spells is ordinary text, before a video and after it", () => {
  const spelled = text("<video> and <image>");
  const { text: rendered, literal } = render(walking, [spelled, short, spelled], ofVideos);
  expect(rendered).toBe("[<video> and <image>|(<image>)|<video> and <image>|]");
  const places = [1, 13, 31, 43];
  expect(literal.map(({ start, end }) => [start, rendered.slice(start, end)])).toEqual(
    places.map((start, index) => [start, index % 2 === 0 ? "<video>" : "<image>"]),
  );
});

test("for a model that knows only images, a video is as many images as it has items", () => {
  expect(render(walking, [long, text("a"), short], ofImages).text).toBe("[<image>|<image>|<image>|a|<image>|]");
  expect(render(printing, [text("a"), long], ofImages).text).toBe("[<image>\n<image>\n<image>\na]");
});

test("a template that prints the content gets the places before the text, in order", () => {
  const parts = [text("a <video>"), image, short, image, text("b")];
  const { text: rendered, literal } = render(printing, parts, ofVideos);
  expect(rendered).toBe("[<image>\n<image>\n<image>\na <video>\nb]");
  expect(literal).toEqual([{ start: 27, end: 34 }]);
});

test("a template that knows no videos gets their places as texts, if the model says so, and fails otherwise", () => {
  const placed = render(knowingImagesOnly, [short, text("a")], { ...ofVideos, placesVideosInText: true });
  expect(placed.text).toBe("<image>|a|");
  expect(() => render(knowingImagesOnly, [short, text("a")], ofVideos)).toThrow(
    expect.objectContaining({
      code: "invalid_argument",
      message: "The model's chat template writes 0 places (<video>) for the 1 videos of the messages.",
    }),
  );
});
