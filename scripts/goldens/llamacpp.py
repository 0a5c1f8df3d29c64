"""llama.cpp, through the xllamacpp wheel: the independent tokenizer, and a second opinion on logits."""

import json
import urllib.request

import xllamacpp


class LlamaCpp:
    """A llama.cpp server inside this process, on one CPU thread."""

    def __init__(self, path, n_ctx=1024):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_gpu_layers = 0
        params.n_ctx = n_ctx
        params.n_parallel = 1
        params.warmup = False
        params.verbosity = 0
        params.cpuparams.n_threads = 1
        params.port = 0
        self._server = xllamacpp.Server(params)
        self._address = self._server.listening_address

    def _post(self, path, body):
        request = urllib.request.Request(
            self._address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def tokenize(self, text, parse_special):
        body = {"content": text, "add_special": False, "parse_special": parse_special}
        return self._post("/tokenize", body)["tokens"]

    def top_logprobs(self, ids, n):
        """The n likeliest next tokens as (id, log probability), likeliest first."""
        body = {"prompt": ids, "n_predict": 1, "n_probs": n, "temperature": 0.0, "cache_prompt": False}
        first = self._post("/completion", body)["completion_probabilities"][0]
        return [(t["id"], t["logprob"]) for t in first["top_logprobs"]]
