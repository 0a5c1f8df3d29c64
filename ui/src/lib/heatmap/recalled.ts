import type { Recalled } from '../ipc/types';
import type { Outline } from './sources';

/** A part of the context that a question brought back. */
export interface Look {
  /** Short: `p. 3`. */
  label: string;
  /** The document whose page it is, where it has several. */
  document: string | null;
  /** In full: `guide.pdf, page 3`. */
  name: string;
  /** Where it stands. */
  at: number;
  end: number;
  entries: number;
}

/** What was looked at again, in the words of the chat, most entries first. */
export function looks(passages: Recalled[], outline: Outline): Look[] {
  const found = new Map<string, Look & { most: number }>();
  for (const { start, end, entries } of passages) {
    for (const span of outline.spansIn(start, end)) {
      const label = outline.label(span);
      if (label === null) continue;
      const from = Math.max(start, span.start);
      // Where a passage reaches over the edge of a page, its entries go to both sides.
      const share = (entries * (Math.min(end, span.end) - from)) / Math.max(1, end - start);
      const to = Math.min(end, span.end);
      const name = outline.nameAt(from);
      const info = outline.documentOf(span);
      const document = info && info.pages > 1 ? info.name : null;
      const place = { at: from, end: to };
      const look = found.get(name) ?? { label, document, name, ...place, entries: 0, most: 0 };
      look.entries += share;
      if (share > look.most) Object.assign(look, place, { most: share });
      found.set(name, look);
    }
  }
  return [...found.values()]
    .sort((a, b) => b.entries - a.entries || a.at - b.at)
    .map(({ label, document, name, at, end, entries }) => ({
      label,
      document,
      name,
      at,
      end,
      entries,
    }));
}
