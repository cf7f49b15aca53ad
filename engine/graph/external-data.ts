/**
 * How ONNX Runtime finds weights that lie in files of their own.
 *
 * It refuses absolute locations, and locations that leave the model's folder once links are followed. Weights lie in
 * several folders (a checkpoint that may be read-only, the cache of converted weights), so graphs name them relative to
 * the root of the file system, and a session is made from the model's bytes with this entry, which makes the root the
 * model's folder. The files are mapped in place all the same.
 */
export const externalDataSessionConfig: Readonly<Record<string, string>> = {
  "session.model_external_initializers_file_folder_path": "/",
};
