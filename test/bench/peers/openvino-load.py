"""Runs a load of requests on OpenVINO GenAI and prints its figures as one line of JSON.

Usage: openvino-load.py MODEL_FOLDER '{"promptTokens": 256, "outputTokens": 128, "clients": 8, "requests": 24, ...}'
       with "arrivals" in place of "clients" for an open loop: seconds from its start to each request

With OpenVINO's defaults (on processors with AMX it computes in bfloat16, unless "precision" says "f32"), except that no prefix is cached, as no two prompts share one, and that all clients may run
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
if "precision" in options:
    properties["INFERENCE_PRECISION_HINT"] = options["precision"]
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
    # Handle, time of the last token or of the request, number of tokens.
    running[num_sent] = [handle, time.perf_counter(), 0]
    num_sent += 1


def percentiles(values):
    if not values:
        return {"median": 0, "p95": 0, "p99": 0}
    values = sorted(values)
    at = lambda share: values[min(len(values) - 1, int(share * len(values)))]
    return {"median": at(0.5), "p95": at(0.95), "p99": at(0.99)}


def run(num_requests):
    """A closed loop of clients, or an open one whose requests arrive at random."""
    running, first_token_ms, between_tokens_ms = {}, [], []
    clients, arrivals = options.get("clients"), options.get("arrivals")
    first_key, num_tokens, num_started = num_sent, 0, 0
    start = time.perf_counter()
    if arrivals is None:
        while num_started < min(clients, num_requests):
            send(running)
            num_started += 1
    while running or num_started < num_requests:
        while (
            arrivals is not None
            and num_started < num_requests
            and time.perf_counter() >= start + arrivals[num_started]
        ):
            send(running)
            num_started += 1
        if not running:
            time.sleep(max(0, start + arrivals[num_started] - time.perf_counter()))
            continue
        pipeline.step()
        now = time.perf_counter()
        for key, request in list(running.items()):
            handle, last, num_own = request
            if handle.can_read():
                received = sum(len(output.generated_ids) for output in handle.read().values())
                if received > 0:
                    gaps = first_token_ms if num_own == 0 else between_tokens_ms
                    # The burst at the start of a closed loop does not count.
                    if num_own > 0 or arrivals is not None or key - first_key >= clients:
                        gaps.append((now - last) * 1000 / received)
                    request[1:] = [now, num_own + received]
                    num_tokens += received
            if request[2] >= options["outputTokens"]:
                del running[key]
                if arrivals is None and num_started < num_requests:
                    send(running)
                    num_started += 1
    return {
        "outputTokensPerSecond": num_tokens / (time.perf_counter() - start),
        "firstTokenMs": percentiles(first_token_ms),
        "betweenTokensMs": percentiles(between_tokens_ms),
    }


clients = options.get("clients")
run(max(2, (clients + 1) // 2 if clients is not None else options["requests"] // 10))
print(json.dumps(run(options["requests"])))
