/** A part of an answer: what the model says, or what it thinks before saying it. */
export interface Part {
  kind: 'text' | 'think';
  text: string;
  /** Still being written. */
  open: boolean;
}

const TAG = /<(\/?)(?:think|thinking)>/gi;

/** Splits an answer at its `<think>` tags. A template may have opened the first one by itself. */
export function splitThinking(answer: string, writing: boolean): Part[] {
  const parts: Part[] = [];
  let kind: Part['kind'] = 'text';
  let from = 0;
  for (const match of answer.matchAll(TAG)) {
    const closes = match[1] === '/';
    if (closes && kind === 'text' && parts.length > 0) continue;
    push(parts, closes ? 'think' : kind, answer.slice(from, match.index));
    kind = closes ? 'text' : 'think';
    from = match.index + match[0].length;
  }
  const rest =
    kind === 'text' && parts.length > 0 ? answer.slice(from).trimStart() : answer.slice(from);
  push(parts, kind, rest);
  const last = parts.at(-1);
  if (last && writing && last.kind === kind) last.open = true;
  return parts;
}

function push(parts: Part[], kind: Part['kind'], text: string) {
  if (text.trim() !== '')
    parts.push({ kind, text: kind === 'think' ? text.trim() : text, open: false });
}
