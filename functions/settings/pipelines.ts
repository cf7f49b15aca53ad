/** Settings of multimodal pipelines, which give a text model its vision part. */
import { jsonObject } from "./json-values.ts";
import { setting } from "./setting.ts";
import { anyText, searchPath } from "./values.ts";

export const pipelineSettings = {
  multimodalPipeline: setting(
    "MULTIMODAL_PIPELINE",
    anyText(),
    "Name of the pipeline that gives a text model its vision part; default: the model's name decides.",
  ),
  pipelinePath: setting(
    "PIPELINE_PATH",
    searchPath(),
    "Folders, separated by colons, in which modules of pipelines are looked up; default: none.",
    { unset: [] },
  ),
  pipelineParams: setting(
    "PIPELINE_PARAMS",
    jsonObject('{"vision_model": "/models/blip2"}'),
    "JSON object: parameters of the pipeline, such as the folders of its weights.",
    { default: "{}" },
  ),
};
