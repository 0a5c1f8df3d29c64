"""What every policy keeps, and what it judges by, computed in numpy from the papers' definitions.

Writes engine/tests/golden/policies.json: inputs and results. Shares no code with the engine.
"""

import json
import sys

import numpy as np

F = np.float32
MIN_RECENT = 16
WINDOW = 32


def protection(policy, phase, budget, sinks, recent):
    """First and last positions that never leave."""
    half = max(budget // 2 if recent is None else recent, MIN_RECENT)
    eighth = max(budget // 8 if recent is None else recent, MIN_RECENT)
    if policy in ("snapkv", "pyramidkv"):
        return (0, WINDOW) if phase == "prompt" else (sinks, half)
    return {
        "window": (sinks, max(budget - sinks, 0)),
        "tova": (sinks, max(MIN_RECENT if recent is None else recent, MIN_RECENT)),
        "h2o": (sinks, half),
        "h2o-paper": (0, half),
        "expected": (sinks, eighth),
        "kvzip": (sinks, eighth),
        "random": (sinks, half),
    }[policy]


def pool(votes, positions):
    near = np.abs(positions[:, None].astype(int) - positions[None, :].astype(int)) <= 3
    return np.where(near, votes[None, :], -np.inf).max(1).astype(F)


def murmur(x):
    x = np.uint64(x)
    mask = np.uint64(0xFFFFFFFF)
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & mask
    x = ((x ^ (x >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & mask
    return x ^ (x >> np.uint64(16))


def ranks(policy, phase, positions, scores, missed, observed, n_seen):
    visible = np.maximum(n_seen - positions - missed, 1)
    mean = (scores / visible.astype(F)).astype(F)
    if policy == "window":
        return positions.astype(F)
    if policy == "h2o-paper":
        return scores
    if policy == "random":
        return np.array([murmur(p) >> np.uint64(8) for p in positions]).astype(F)
    if policy in ("snapkv", "pyramidkv"):
        return pool(observed, positions) if phase == "prompt" and observed is not None else mean
    if policy in ("tova", "expected") and observed is not None:
        return observed
    if policy == "kvzip" and observed is not None:
        return np.where(np.isnan(observed), mean, observed)
    return mean


def keep(case):
    positions = np.array(case["positions"])
    scores = np.array(case["scores"], F)
    missed = np.array(case["missed"])
    observed = case["observed"]
    if observed is not None:
        observed = np.array([np.nan if x is None else x for x in observed], F)
    n, budget, n_seen = len(positions), case["budget"], case["n_seen"]
    if n <= budget:
        return case["positions"]
    sinks, recent = protection(case["policy"], case["phase"], budget, case["sinks"], case["recent"])
    rank = ranks(case["policy"], case["phase"], positions, scores, missed, observed, n_seen)
    order = []
    for slot, p in enumerate(case["positions"]):
        if p in case["pinned"]:
            key = (0, 0.0)
        elif p < sinks:
            key = (1, 0.0)
        elif p >= n_seen - min(recent, max(budget // 8, MIN_RECENT)):
            key = (2, -float(p))
        elif p in case["recalled"]:
            key = (3, -float(rank[slot]))
        elif p >= n_seen - recent:
            key = (4, -float(p))
        else:
            key = (5, -float(rank[slot]))
        order.append((*key, p))
    return sorted(p for *_, p in sorted(order)[:budget])


def keep_cases(rng):
    cases = []
    for policy in ("window", "h2o", "h2o-paper", "tova", "snapkv", "pyramidkv", "expected", "kvzip", "random"):
        for phase in ("prompt", "decode"):
            for variant in range(4):
                n = int(rng.integers(80, 200))
                gaps = np.ones(n, int) if variant == 0 else rng.integers(1, 4, n)
                positions = np.cumsum(gaps) - gaps[0]
                n_seen = int(positions[-1]) + 1 + int(variant == 3) * 5
                # Eighths, so that equal ranks occur.
                scores = rng.integers(0, 40, n) / 8
                missed = (rng.random(n) * (n_seen - positions) * 0.8).astype(int) * (rng.random(n) < 0.3)
                observed = None
                asks = policy in ("tova", "expected", "kvzip") or (policy in ("snapkv", "pyramidkv") and phase == "prompt")
                if asks and variant != 2:
                    observed = [float(x) for x in rng.integers(0, 64, n) / 64]
                    if policy == "kvzip":
                        observed = [None if rng.random() < 0.3 else x for x in observed]
                pick = lambda k: sorted(int(p) for p in rng.choice(positions, k, replace=False))
                case = {
                    "policy": policy,
                    "phase": phase,
                    "positions": positions.tolist(),
                    "scores": scores.tolist(),
                    "missed": missed.tolist(),
                    "observed": observed,
                    "n_seen": n_seen,
                    "budget": int(rng.integers(40, 72)) if variant else 48,
                    "sinks": 4,
                    "recent": None if variant < 3 else 20,
                    "pinned": pick(5) if variant > 0 else [],
                    "recalled": pick(9) if variant > 1 else [],
                }
                case["kept"] = keep(case)
                cases.append(case)
    return cases


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def vote_cases(rng):
    """Σ over the last queries of the softmax, mean over the group; and the largest of it."""
    cases = []
    for group, w, n, d in ((3, 32, 70, 16), (1, 1, 40, 8), (2, 5, 33, 32)):
        q = rng.normal(size=(group, w, d)).astype(F)
        k = rng.normal(size=(n, d)).astype(F)
        logits = q.astype(float) @ k.astype(float).T / np.sqrt(d)
        # Query t stands at key n − w + t.
        mask = np.arange(n)[None, :] > (n - w + np.arange(w))[:, None]
        p = softmax(np.where(mask[None], -np.inf, logits))
        cases.append({
            "group": group, "w": w, "d": d, "q": q.ravel().tolist(), "k": k.ravel().tolist(),
            "sum": p.sum((0, 1)).tolist(), "max": p.max((0, 1)).tolist(),
        })
    return cases


def rotation(t, frequencies, interleaved):
    """The matrix that turns a head by position t."""
    half = len(frequencies)
    r = np.zeros((2 * half, 2 * half))
    for i, f in enumerate(frequencies):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        c, s = np.cos(t * f), np.sin(t * f)
        r[a, a], r[a, b], r[b, a], r[b, b] = c, -s, s, c
    return r


def expected_cases(rng):
    """ExpectedAttention (arXiv 2510.00636) with covariance and the values' lengths, rotation averaged over 512."""
    cases = []
    for interleaved in (True, False):
        d, n, group, seen = 8, 25, 2, 60
        frequencies = 10_000.0 ** (-np.arange(d // 2) / (d // 2))
        q = rng.normal(size=(group, seen, d)) + rng.normal(size=(group, 1, d))
        k, v = rng.normal(size=(n, d)), rng.normal(size=(n, d))
        k = np.stack([rotation(t, frequencies, interleaved) @ x for t, x in enumerate(k)])
        mean_rotation = np.mean([rotation(t, frequencies, interleaved) for t in range(seen, seen + 512)], 0)
        out = np.zeros(n)
        for of_head in q:
            mu = mean_rotation @ of_head.mean(0)
            sigma = mean_rotation @ np.cov(of_head.T, bias=True) @ mean_rotation.T
            logits = k @ mu / np.sqrt(d) + np.einsum("ni,ij,nj->n", k, sigma, k) / (2 * d)
            out += softmax(logits) / group
        cases.append({
            "interleaved": interleaved, "d": d, "group": group, "seen": seen, "frequencies": frequencies.tolist(),
            "q": q.ravel().tolist(), "k": k.ravel().tolist(), "v": v.ravel().tolist(),
            "scores": (out * np.linalg.norm(v, axis=1)).tolist(),
        })
    return cases


def pyramid_cases():
    """min = (B − W)/β, max = 2(B − W) − min, linear over the layers, W more in each (arXiv 2406.02069)."""
    cases = []
    for budget, layers in ((128, 24), (1024, 30), (256, 2), (40, 12)):
        least = (budget - WINDOW) / 20
        most = 2 * (budget - WINDOW) - least
        of_layers = [WINDOW + int(np.floor(most + (least - most) * i / (layers - 1) + 0.5)) for i in range(layers)]
        cases.append({"budget": budget, "layers": of_layers})
    return cases


def main(path):
    rng = np.random.default_rng(20_240_624)
    golden = {
        "keep": keep_cases(rng),
        "votes": vote_cases(rng),
        "expected": expected_cases(rng),
        "pyramid": pyramid_cases(),
    }
    with open(path, "w") as file:
        json.dump(golden, file, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1])
