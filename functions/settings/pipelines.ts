/** Settings of multimodal pipelines, which give a text model its vision part. */
import { deviceNames, dtypeNames } from "../../engine/contract/config.ts";
import { jsonObject } from "./json-values.ts";
import { setting } from "./setting.ts";
import { anyText, oneOf, searchPath } from "./values.ts";

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
  visionDtype: setting(
    "VISION_DTYPE",
    oneOf(dtypeNames),
    "Type of the vision tower; default: that of the decoder, but not quantised.",
  ),
  visionDevice: setting(
    "VISION_DEVICE",
    oneOf(deviceNames),
    "Device of the vision tower: cpu, cuda or webgpu; default: DEVICE.",
  ),
  projectorDtype: setting(
    "PROJECTOR_DTYPE",
    oneOf(dtypeNames),
    "Type of the projector after the vision tower; default: that of the tower.",
  ),
  projectorDevice: setting(
    "PROJECTOR_DEVICE",
    oneOf(deviceNames),
    "Device of the projector, which must be the tower's.",
  ),
};
