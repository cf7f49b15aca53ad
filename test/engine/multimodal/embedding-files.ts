/** Files of embeddings in the formats of numpy and safetensors. */

export function numpyFile(
  type: string,
  shape: readonly number[],
  data: Uint8Array,
  { version = 1, order = "False" } = {},
): Buffer {
  const sizes = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const header = `{'descr': '${type}', 'fortran_order': ${order}, 'shape': (${sizes}), }`;
  const lengthBytes = version === 1 ? 2 : 4;
  const start = 8 + lengthBytes;
  const padded = `${header.padEnd(Math.ceil((start + header.length + 1) / 64) * 64 - start - 1)}\n`;
  const length = Buffer.alloc(lengthBytes);
  length.writeUIntLE(padded.length, 0, lengthBytes);
  return Buffer.concat([Buffer.from("\x93NUMPY", "latin1"), Buffer.of(version, 0), length, Buffer.from(padded), data]);
}

export function safetensorsFile(
  type: string,
  shape: readonly number[],
  data: Uint8Array,
  others: Readonly<Record<string, unknown>> = {},
  name = "image_embeds",
  numBytes = data.byteLength,
): Buffer {
  const header = JSON.stringify({ ...others, [name]: { dtype: type, shape, data_offsets: [0, numBytes] } });
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, Buffer.from(header), data]);
}
