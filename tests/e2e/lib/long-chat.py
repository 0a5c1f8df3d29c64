"""Fills the database argv[1] with a chat of argv[2] questions and answers, and one with a single huge answer.

The schema is that of the file, which the window has made: what a later step added is filled by its own rule.
"""

import sqlite3
import sys
import time

PARAGRAPHS = [
    "The reservoir above the town was **begun in 1887** and finished nine years later, after two dams had given way. "
    "What remains of the first one can be seen at low water: a line of dressed stone, and the iron gate that was "
    "meant to be closed by four men. The engineers wrote that the ground had deceived them.",
    "| year | level | outflow |\n| --- | ---: | ---: |\n| 1896 | 12.4 | 3.1 |\n| 1897 | 13.0 | 2.9 |\n| 1898 | 11.7 | 3.6 |",
    "```rust\nfn level(inflow: f64, outflow: f64, days: u32) -> f64 {\n    (0..days).fold(12.0, |level, _| level + inflow - outflow)\n}\n```",
    "- the *upper* sluice, which is opened in spring\n- the lower one, which `never` is\n- and the overflow, of which "
    "[a drawing](https://example.org/overflow) is kept in the town hall",
    "So the level after $n$ days is \\(h_n = h_0 + \\sum_{i=1}^{n} (q_i - r_i)\\), as long as nothing runs over.",
]


def answer(i: int) -> str:
    parts = [f"## Answer {i}"]
    parts += [f"{i}.{k} {PARAGRAPHS[0]}" for k in range(5)]
    parts += [PARAGRAPHS[1 + i % 4]]
    return "\n\n".join(parts)


def main() -> None:
    db = sqlite3.connect(sys.argv[1])
    turns = int(sys.argv[2])
    now = int(time.time() * 1000)

    def chat(id: str, title: str, texts: list[str], age: int) -> None:
        db.execute(
            "INSERT INTO chats (id, title, created_ms, updated_ms) VALUES (?, ?, ?, ?)", (id, title, now - age, now - age)
        )
        for i, text in enumerate(texts):
            role, finish = ("user", None) if i % 2 == 0 else ("assistant", "eos")
            db.execute(
                "INSERT INTO messages (chat_id, role, text, finish, created_ms) VALUES (?, ?, ?, ?, ?)",
                (id, role, text, finish, now - age + i),
            )

    long = [text for i in range(turns) for text in (f"Question {i}: what about the dam?", answer(i))]
    huge = "\n\n".join(answer(i) for i in range(turns // 2))
    chat("long", "A long chat", long, 1000)
    chat("huge", "A huge answer", ["Tell me everything.", huge, "x" * 20 + " word" * 100_000, "Thank you."], 2000)
    columns = {row[1] for row in db.execute("PRAGMA table_info(messages)")}
    if "parent_id" in columns:
        db.execute(
            "UPDATE messages SET parent_id = (SELECT max(b.id) FROM messages b "
            "WHERE b.chat_id = messages.chat_id AND b.id < messages.id)"
        )
        db.execute("UPDATE chats SET leaf_id = (SELECT max(id) FROM messages WHERE chat_id = chats.id)")
    db.commit()
    print(sum(len(text) for text in long))


main()
