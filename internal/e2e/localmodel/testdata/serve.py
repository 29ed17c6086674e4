"""Serves a GGUF file with llama.cpp's server, and prints its address: serve.py FILE."""
import sys

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.model_alias = sys.argv[1], {"random"}
params.n_ctx, params.n_parallel, params.warmup, params.use_jinja = 4096, 1, False, True
params.cpuparams.n_threads = 1
params.endpoint_metrics = True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()  # ends with the test
