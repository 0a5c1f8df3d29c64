import { diffArrays } from 'diff';

/** A run of words: in both answers, only in this one, or only in the one it is held against. */
export interface DiffPart {
  kind: 'same' | 'added' | 'missing';
  text: string;
}

export interface Diff {
  parts: DiffPart[];
  /** Words of this answer that the other lacks. */
  added: number;
  /** Words of the other answer that this one lacks. */
  missing: number;
  /** Words that both begin with. */
  sameUntil: number;
}

/** Two answers of a few thousand words that share none take this long at most. */
const WITHIN_MS = 400;

/** Fewer words than this in a row, between changes, are chance. */
const WORTH_SEEING = 3;

/** Letters that are words of their own: nothing divides the words of these scripts. */
const ALONE = '\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Thai}\\p{sc=Lao}\\p{sc=Khmer}';
const LETTER = `(?:(?![${ALONE}])[\\p{L}\\p{M}\\p{N}_])`;
// `Intl.Segmenter` knows more of language, and takes seconds for what this does in milliseconds.
const TOKEN = new RegExp(`\\s*(?:[${ALONE}]|${LETTER}+(?:[.,'’-]${LETTER}+)*|\\S)|\\s+$`, 'gu');
const WORD = /[\p{L}\p{N}]/u;

/** Words and signs, each with the space before it. */
const tokens = (text: string): string[] => text.match(TOKEN) ?? [];
const words = (all: string[]): number => all.filter((token) => WORD.test(token)).length;

export function wordCount(text: string): number {
  return words(tokens(text));
}

/** How `text` differs from `base`, word by word. Space does not count. */
export function diffAgainst(base: string, text: string): Diff {
  const [before, after] = [tokens(base), tokens(text)];
  const changes = diffArrays(before, after, {
    comparator: (a, b) => a === b || a.trim() === b.trim(),
    timeout: WITHIN_MS,
  }) ?? [
    { value: before, added: false, removed: true },
    { value: after, added: true, removed: false },
  ];
  const diff: Diff = { parts: [], added: 0, missing: 0, sameUntil: 0 };
  const runs = changes.filter(({ value }) => value.length > 0);
  const [first] = runs;
  if (first && !first.added && !first.removed) diff.sameUntil = words(first.value);
  for (const { value, added, removed } of runs) {
    if (added) diff.added += words(value);
    if (removed) diff.missing += words(value);
  }
  // What is between two `same` runs worth the name is shown as one change, not word for word.
  let [missing, added] = ['', ''];
  const flush = () => {
    if (missing !== '') diff.parts.push({ kind: 'missing', text: missing });
    if (added !== '') diff.parts.push({ kind: 'added', text: added });
    [missing, added] = ['', ''];
  };
  runs.forEach((run, i) => {
    const text = run.value.join('');
    const between = i > 0 && i < runs.length - 1 && words(run.value) < WORTH_SEEING;
    if (run.removed) missing += text;
    else if (run.added) added += text;
    else if (between) {
      missing += text;
      added += text;
    } else {
      flush();
      diff.parts.push({ kind: 'same', text });
    }
  });
  flush();
  return diff;
}
