"""Runs a closed loop of requests on OpenVINO GenAI and prints its figures as one line of JSON.

Usage: openvino-load.py MODEL_FOLDER '{"promptTokens": 256, "outputTokens": 128, "clients": 8, "requests": 24, ...}'

With OpenVINO's defaults, except that no prefix is cached, as no two prompts share one, and that all clients may run
together.
"""

import json
import random
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai

folder, options = sys.argv[1], json.loads(sys.argv[2])
scheduler = genai.SchedulerConfig()
scheduler.cache_size = 4
scheduler.max_num_seqs = 256
scheduler.enable_prefix_caching = False
properties = {"INFERENCE_NUM_THREADS": options["threads"]}
pipeline = genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", properties)
generator = random.Random(1)
num_sent = 0


def send(running):
    global num_sent
    config = genai.GenerationConfig()
    config.max_new_tokens = options["outputTokens"]
    config.ignore_eos = True
    config.do_sample = False
    ids = [[generator.randrange(300, options["vocabSize"]) for _ in range(options["promptTokens"])]]
    handle = pipeline.add_request(num_sent, ov.Tensor(np.array(ids, dtype=np.int64)), config)
    running[num_sent] = [handle, time.perf_counter(), 0]
    num_sent += 1


def loop(num_requests):
    running, first_token_ms, num_tokens, num_started = {}, [], 0, 0
    start = time.perf_counter()
    while num_started < min(options["clients"], num_requests):
        send(running)
        num_started += 1
    while running:
        pipeline.step()
        now = time.perf_counter()
        for key, request in list(running.items()):
            handle, sent, num_own = request
            if handle.can_read():
                received = sum(len(output.generated_ids) for output in handle.read().values())
                if num_own == 0 and received > 0:
                    first_token_ms.append((now - sent) * 1000)
                request[2] += received
                num_tokens += received
            if request[2] >= options["outputTokens"]:
                del running[key]
                if num_started < num_requests:
                    send(running)
                    num_started += 1
    first_token_ms.sort()
    return {
        "outputTokensPerSecond": num_tokens / (time.perf_counter() - start),
        "firstTokenMs": first_token_ms[len(first_token_ms) // 2],
    }


loop(max(2, (options["clients"] + 1) // 2))
print(json.dumps(loop(options["requests"])))
