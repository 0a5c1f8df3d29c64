"""A small SentencePiece vocabulary as a GGUF file would carry it, and what sentencepiece itself makes of text.

No small model with such a vocabulary exists to test with, so this trains one on the prompts.
"""

import io
import json
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_pb2

import varied_strings


def make(path):
    lines = (Path(__file__).parent / "prompts.txt").read_text().splitlines()
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=trained,
        model_type="bpe",
        vocab_size=1200,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        character_coverage=0.995,
        control_symbols=["[INST]", "[/INST]"],
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    model = model_pb2.ModelProto.FromString(trained.getvalue())
    texts = [text for text in varied_strings.strings() if "\0" not in text]
    golden = {
        "tokens": [piece.piece for piece in model.pieces],
        "scores": [piece.score for piece in model.pieces],
        "types": [piece.type for piece in model.pieces],
        "cases": [{"text": text, "as_text": processor.encode(text)} for text in texts],
    }
    path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size:,} bytes, {len(texts)} strings")
