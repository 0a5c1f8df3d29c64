"""The forward pass of llama, qwen2 and qwen3 GGUF files in plain numpy, f32, without a cache.

Written from the papers and the file format, not from the engine's code: what both agree on is right.
"""

import gguf
import numpy as np


class Model:
    """An open GGUF file. Weights are dequantized layer by layer, so that memory stays small."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self._tensors = {t.name: t for t in reader.tensors}
        meta = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("tokenizer.")}
        self.arch = meta["general.architecture"]
        if self.arch not in ("llama", "qwen2", "qwen3"):
            raise ValueError(f"architecture {self.arch}")

        def get(key, default=None):
            return meta.get(f"{self.arch}.{key}", default)

        self.n_layers = get("block_count")
        self.n_embd = get("embedding_length")
        self.n_head = get("attention.head_count")
        self.n_kv = get("attention.head_count_kv", self.n_head)
        self.head_dim = get("attention.key_length", self.n_embd // self.n_head)
        self.eps = get("attention.layer_norm_rms_epsilon")
        self.theta = get("rope.freq_base", 10000.0)
        self.n_rot = get("rope.dimension_count", self.head_dim)
        if get("rope.scaling.type", "none") != "none" or "rope_freqs.weight" in self._tensors:
            raise ValueError("rope scaling is not part of this reference")

    def weight(self, name):
        """As f32, [out, in]; None where the file has no such tensor."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)

    def last_logits(self, prompts):
        """The logits of the last position of each prompt."""
        embedding = self.weight("token_embd.weight")
        hidden = [embedding[ids] for ids in prompts]
        for layer in range(self.n_layers):
            block = {
                name: self.weight(f"blk.{layer}.{name}")
                for name in (
                    "attn_norm.weight attn_q.weight attn_q.bias attn_k.weight attn_k.bias attn_v.weight attn_v.bias "
                    "attn_q_norm.weight attn_k_norm.weight attn_output.weight "
                    "ffn_norm.weight ffn_gate.weight ffn_up.weight ffn_down.weight"
                ).split()
            }
            hidden = [self._block(block, x) for x in hidden]
        output = self.weight("output.weight")
        if output is None:
            output = embedding
        last = np.stack([x[-1] for x in hidden])
        return rms_norm(last, self.weight("output_norm.weight"), self.eps) @ output.T

    def _block(self, w, x):
        n = len(x)
        h = rms_norm(x, w["attn_norm.weight"], self.eps)

        def heads(name, count):
            y = h @ w[f"attn_{name}.weight"].T
            if w[f"attn_{name}.bias"] is not None:
                y = y + w[f"attn_{name}.bias"]
            return y.reshape(n, count, self.head_dim)

        q, k, v = heads("q", self.n_head), heads("k", self.n_kv), heads("v", self.n_kv)
        if w["attn_q_norm.weight"] is not None:
            q = rms_norm(q, w["attn_q_norm.weight"], self.eps)
            k = rms_norm(k, w["attn_k_norm.weight"], self.eps)
        q, k = self._rope(q), self._rope(k)

        group = self.n_head // self.n_kv
        future = np.triu(np.full((n, n), -np.inf, np.float32), 1)
        mixed = np.empty_like(q)
        for head in range(self.n_head):
            scores = q[:, head] @ k[:, head // group].T / np.sqrt(np.float32(self.head_dim)) + future
            mixed[:, head] = softmax(scores) @ v[:, head // group]
        x = x + mixed.reshape(n, -1) @ w["attn_output.weight"].T

        h = rms_norm(x, w["ffn_norm.weight"], self.eps)
        gate = h @ w["ffn_gate.weight"].T
        return x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up.weight"].T)) @ w["ffn_down.weight"].T

    def _rope(self, x):
        # GGUF files of arch `llama` hold q and k permuted, so that a rotation's two numbers are neighbours;
        # those of the qwen family hold them half a head apart, as in the original checkpoints.
        half = self.n_rot // 2
        frequency = np.float64(self.theta) ** (-np.arange(half) / half)
        angle = np.outer(np.arange(len(x)), frequency)[:, None, :]
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        if self.arch == "llama":
            first, second = np.s_[..., 0 : self.n_rot : 2], np.s_[..., 1 : self.n_rot : 2]
        else:
            first, second = np.s_[..., :half], np.s_[..., half : self.n_rot]
        turned = x.copy()
        turned[first] = x[first] * cos - x[second] * sin
        turned[second] = x[first] * sin + x[second] * cos
        return turned


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
