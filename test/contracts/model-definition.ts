/**
 * The contract of every model with images. A new model is one folder, one line of registration and one call of this
 * suite.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { ImagePart, Prompt } from "../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import type { InputProcessor, ProcessedPrompt } from "../../engine/input/input-processor.ts";
import type { LoadedImageInputs } from "../../engine/input/multimodal-inputs.ts";
import { placedUpdates } from "../../engine/input/place-items.ts";
import type { VisionEncoderInput } from "../../engine/models/built-model.ts";
import type { ModelDefinition } from "../../engine/models/model-definition.ts";
import { dummyPicture } from "../../engine/multimodal/dummy-inputs.ts";
import { splitFields } from "../../engine/multimodal/field-config.ts";
import { findPlaceholders } from "../../engine/multimodal/find-placeholders.ts";
import type { EncodedImage } from "../../engine/multimodal/multimodal-processor.ts";
import { numEmbeddingsIn } from "../../engine/multimodal/placeholder.ts";
import type { ItemTensor } from "../../engine/multimodal/processed-item.ts";
import type { ImageSize } from "../../engine/multimodal/processing-info.ts";
import { numElements } from "../../engine/runtime/element-type.ts";
import type { Tokenizer } from "../../engine/text/tokenizer.ts";
import { computePicture, encodePng } from "../engine/images/computed-picture.ts";

export interface ModelDefinitionFixture extends AsyncDisposable {
  readonly imageInputs: LoadedImageInputs;
  /** Serves `data:` references, without caches. */
  readonly inputProcessor: InputProcessor;
  readonly tokenizer: Tokenizer;
  readonly encoderInputs: readonly VisionEncoderInput[];
}

/** Sizes around the limits at which processors round and split, in addition to the fixture's own. */
const edgeSizes: readonly ImageSize[] = [
  { width: 1, height: 1 },
  { width: 1, height: 300 },
  { width: 300, height: 1 },
  { width: 37, height: 53 },
  { width: 64, height: 64 },
  { width: 301, height: 40 },
  { width: 40, height: 301 },
];

const never = new AbortController().signal;

/**
 * @param ownSizes Sizes at which the model's processor changes its behaviour.
 * @param isTaken Which sizes the model accepts, if it rejects some.
 */
export function testModelDefinition(
  name: string,
  definition: ModelDefinition,
  createFixture: () => Promise<ModelDefinitionFixture>,
  ownSizes: readonly ImageSize[] = [],
  isTaken: (size: ImageSize) => boolean = () => true,
): void {
  describe(`the model definition contract: ${name}`, () => {
    const sizes = [...edgeSizes, ...ownSizes].filter(isTaken);
    let fixture: ModelDefinitionFixture;

    beforeAll(async () => {
      fixture = await createFixture();
    });
    afterAll(async () => {
      await fixture[Symbol.asyncDispose]();
    });

    const process = async (prompt: Prompt): Promise<ProcessedPrompt> => {
      const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
      return fixture.inputProcessor.process(request, never);
    };
    /** A prompt of images only, as in the model's dummy text. */
    const processPictures = async (pictures: readonly Uint8Array[]): Promise<ProcessedPrompt> => {
      const { dummyInputs } = fixture.imageInputs;
      const text = dummyInputs.build(pictures.length).text;
      return process({ kind: "text", text, addSpecialTokens: true, images: pictures.map(toPart) });
    };
    const maxImages = (): number => fixture.imageInputs.info.supportedLimits.image ?? 2;

    test("registers the processor, the input information and the dummy inputs together", () => {
      expect(definition.images).not.toBeNull();
      expect(fixture.imageInputs.info.supportedLimits).toHaveProperty("image");
      expect(maxImages()).toBeGreaterThanOrEqual(1);
    });

    test.for(sizes)("predicts the number of embeddings of a $width x $height picture", async (size) => {
      const { info, processor } = fixture.imageInputs;
      const { images } = await processPictures([picture(size)]);
      expect(images).toHaveLength(1);
      expect(numEmbeddingsIn(images[0]!.placeholder)).toBe(info.numImageTokens(size));
      expect(processor.numImageTokens(size, processor.options)).toBe(info.numImageTokens(size));
      expect(info.numImageTokens(size)).toBeLessThanOrEqual(info.maxTokensPerItem);
      expect(images[0]!.placeholder.length).toBeGreaterThanOrEqual(info.minTokensPerItem);
    });

    test("applies its own options and rejects others by path", () => {
      const { processor } = fixture.imageInputs;
      expect(() => processor.checkOptions(processor.options)).not.toThrow();
      expect(() => processor.checkOptions({ ...processor.options, image_std: [1, 0, 1] })).toThrow(
        expect.objectContaining({ code: "invalid_checkpoint", parameter: "image_std[1]" }),
      );
      expect([...processor.requestOptions]).toContain("image_std");
    });

    test.for(sizes)("makes the encoder's inputs from a $width x $height picture", async (size) => {
      const { images } = await processPictures([picture(size)]);
      const { tensors } = images[0]!;
      expect([...tensors.keys()].sort()).toEqual(fixture.encoderInputs.map((input) => input.name).sort());
      for (const input of fixture.encoderInputs) {
        const tensor = tensors.get(input.name) as ItemTensor;
        expect(tensor.elementType).toBe(input.elementType);
        expect(tensor.shape).toEqual(
          input.shape.map((size, axis) => (typeof size === "number" ? size : tensor.shape[axis])),
        );
        expect(tensor.data).toHaveLength(numElements(tensor.shape));
      }
    });

    test("has dummy inputs of the worst case, which a size limit makes smaller and never larger", async () => {
      const { info, dummyInputs } = fixture.imageInputs;
      expect(info.numImageTokens(info.imageSizeWithMostFeatures)).toBe(info.maxTokensPerItem);
      const { imageSizes } = dummyInputs.build(maxImages());
      expect(imageSizes).toHaveLength(maxImages());
      for (const size of imageSizes) expect(info.numImageTokens(size)).toBe(info.maxTokensPerItem);
      const { width, height } = info.imageSizeWithMostFeatures;
      expect(dummyInputs.build(1, { width: 1 }).imageSizes).toEqual([{ width: 1, height }]);
      expect(dummyInputs.build(1, { width: width * 2, height: height * 2 }).imageSizes).toEqual([{ width, height }]);
      for (const size of imageSizes) {
        const { images } = await processPictures([dummyPicture(size)]);
        expect(images.map(({ placeholder }) => numEmbeddingsIn(placeholder))).toEqual([info.maxTokensPerItem]);
      }
      // A model may show several pictures of one prompt with fewer embeddings.
      const { images } = await processPictures(imageSizes.map(dummyPicture));
      for (const { placeholder } of images) {
        expect(numEmbeddingsIn(placeholder)).toBeLessThanOrEqual(info.maxTokensPerItem);
      }
    });

    test("splits a batch into bit-identical independent items", async () => {
      const { processor } = fixture.imageInputs;
      const encoded = sizes.map((size, index) => toEncoded(picture(size), index));
      const batch = await processor.processImages(encoded, processor.options, never);
      const items = splitFields(batch.fields, processor.fieldConfigs(batch));
      expect(items).toHaveLength(encoded.length);
      expect(batch.imageSizes).toEqual(sizes);
      for (const [index, image] of encoded.entries()) {
        const alone = await processor.processImages([image], processor.options, never);
        expect(splitFields(alone.fields, processor.fieldConfigs(alone))).toEqual([items[index]]);
      }
    });

    test("finds placeholders in the prompt where they were put, from text and from tokens", async () => {
      const { processor, loader } = fixture.imageInputs;
      const pictures = sizes.slice(-maxImages()).map(picture);
      const placeholder = processor.imagePlaceholder ?? "";
      const text = pictures.map((_, index) => `${placeholder} word ${index}`).join("");
      const parts = pictures.map(toPart);
      const fromText = await process({ kind: "text", text, addSpecialTokens: true, images: parts });
      const tokenIds = (await fixture.tokenizer.encode(text, { addSpecialTokens: true })) as number[];
      const before = [...tokenIds];
      expect(await process({ kind: "tokens", tokenIds, images: parts })).toEqual(fromText);
      expect(tokenIds).toEqual(before);

      const items = await loader.load(parts, { processorOptions: processor.options }, never);
      const updates = placedUpdates(
        items.map(({ item: { promptUpdates } }, index) => ({ promptUpdates, index, imageIndex: index })),
        { processor, options: processor.options, vocabSize: Infinity },
      );
      const [found] = findPlaceholders(fromText.promptTokenIds, [updates]);
      expect(found).toEqual(fromText.images.map((image) => image.placeholder));
      // Tokens that are already present are not inserted again.
      expect(await process({ kind: "tokens", tokenIds: fromText.promptTokenIds, images: parts })).toEqual(fromText);
    });

    test("updates a token prompt like any other, once, without changing the caller's tokens", async () => {
      const { processor } = fixture.imageInputs;
      const tokenIds = (await fixture.tokenizer.encode("some words", { addSpecialTokens: true })) as number[];
      const frozen = Object.freeze([...tokenIds]);
      const once = processor.applyTokensOnly?.(frozen, 0) ?? frozen;
      for (const [numImages, updated] of [once, processor.applyTokensOnly?.(frozen, 1) ?? frozen].entries()) {
        expect(processor.applyTokensOnly?.(updated, numImages) ?? updated).toEqual(updated);
      }
      expect(frozen).toEqual(tokenIds);
      const fromText = await process({ kind: "text", text: "some words", addSpecialTokens: true });
      expect(fromText.promptTokenIds).toEqual(once);
    });
  });
}

function picture(size: ImageSize): Uint8Array {
  return encodePng(computePicture("photo", size.width, size.height));
}

function toPart(bytes: Uint8Array): ImagePart {
  return { type: "image", reference: `data:image/png;base64,${Buffer.from(bytes).toString("base64")}` };
}

function toEncoded(bytes: Uint8Array, index: number): EncodedImage {
  return { bytes, parameter: `prompt.images[${index}]` };
}
