"""Makes the golden files of the engine's tests. See engine/tests/golden/README.md."""

import argparse
import json
import tempfile
from pathlib import Path

import gguf
import numpy as np

import sentencepiece_vocabulary
import templates
import varied_strings
from forward import Model
from llamacpp import LlamaCpp

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "engine/tests/golden"
MODELS = {
    "smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf",
    "qwen25": "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
}
# Prompts of the larger model: prose, code, French, chat and JSON.
QWEN_PROMPTS = [3, 28, 31, 34, 39]
N_INDICES = 4096


def write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def tokens(name, llama):
    cases = [
        {"text": text, "parse": llama.tokenize(text, True), "as_text": llama.tokenize(text, False)}
        for text in varied_strings.strings()
    ]
    write_json(GOLDEN / f"tokens-{name}.json", {"model": MODELS[name], "cases": cases})


def logits(name, path, llama):
    texts = (Path(__file__).parent / "prompts.txt").read_text().rstrip("\n").split("\n%%\n")
    if name == "qwen25":
        texts = [texts[i] for i in QWEN_PROMPTS]
    prompts = [llama.tokenize(text, True) for text in texts]
    assert all(8 <= len(ids) <= 120 for ids in prompts), [len(ids) for ids in prompts]
    rows = Model(path).last_logits(prompts)
    indices = np.sort(np.random.default_rng(0).choice(rows.shape[1], N_INDICES, replace=False))

    same, worst = 0, 0.0
    cases = []
    for text, ids, row in zip(texts, prompts, rows):
        second, first = np.argsort(row)[-2:]
        cases.append({"text": text, "ids": ids, "top": int(first), "lead": round(float(row[first] - row[second]), 4)})
        # llama.cpp quantizes activations: close, not equal.
        theirs = llama.top_logprobs(ids, 20)
        ours = row - row.max() - np.log(np.exp(row - row.max()).sum())
        same += theirs[0][0] == first
        worst = max(worst, max(abs(ours[i] - p) for i, p in theirs[:5]))
    print(f"{name}: llama.cpp has the same top token on {same} of {len(cases)}, log probabilities within {worst:.3f}")

    values = rows[:, indices].astype("<f2")
    (GOLDEN / f"logits-{name}.f16").write_bytes(values.tobytes())
    write_json(
        GOLDEN / f"logits-{name}.json",
        {"model": MODELS[name], "vocab": rows.shape[1], "indices": indices.tolist(), "cases": cases},
    )


def prompts():
    from_files = {}
    for name, file in MODELS.items():
        reader = gguf.GGUFReader(ROOT / "models" / file)
        from_files[name] = reader.fields["tokenizer.chat_template"].contents()
    write_json(GOLDEN / "prompts.json", templates.cases(from_files))


def check(name, path):
    """Without quantized activations the two must agree closely: the same weights, as llama.cpp reads them in f32."""
    prompts = json.loads((GOLDEN / f"logits-{name}.json").read_text())["cases"][::7]
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        write_f32(path, file.name)
        llama = LlamaCpp(file.name)
        worst = 0.0
        for case, row in zip(prompts, Model(path).last_logits([case["ids"] for case in prompts])):
            ours = row - row.max() - np.log(np.exp(row - row.max()).sum())
            worst = max(worst, max(abs(ours[i] - p) for i, p in llama.top_logprobs(case["ids"], 200)))
    print(f"{name}: log probabilities within {worst:.4f} of llama.cpp in f32, on {len(prompts)} prompts")


def write_f32(source, target):
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents() if key != "general.file_type" else 0, field.types[0])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("what", choices=["tokens", "logits", "prompts", "sentencepiece", "check"], nargs="+")
    args.add_argument("--model", choices=MODELS, action="append", help="default: those that are in models/")
    args = args.parse_args()
    if "prompts" in args.what:
        prompts()
    if "sentencepiece" in args.what:
        sentencepiece_vocabulary.make(GOLDEN / "tokens-sentencepiece.json")
    if not {"tokens", "logits", "check"} & set(args.what):
        return
    for name in args.model or MODELS:
        path = ROOT / "models" / MODELS[name]
        if not path.exists():
            print(f"{name}: skipped, {path.relative_to(ROOT)} is not there")
            continue
        if "check" in args.what:
            check(name, path)
        if not {"tokens", "logits"} & set(args.what):
            continue
        llama = LlamaCpp(path)
        if "tokens" in args.what:
            tokens(name, llama)
        if "logits" in args.what:
            logits(name, path, llama)


if __name__ == "__main__":
    main()
