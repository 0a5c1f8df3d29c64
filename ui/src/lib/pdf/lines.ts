import type { Box } from './geometry';

/** Boxes that stand next to each other on one line, without a gap that could be a gutter. */
export interface Segment {
  boxes: Box[];
  u0: number;
  u1: number;
  v: number;
  size: number;
  chars: number;
}

const CJK = /[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]/;
const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;

/** Gaps in units of the type size. */
const WORD_GAP = 0.17;
const GUTTER = 1.6;
/** Between runs that do not follow each other in the stream, a smaller gap already tells columns apart. */
const GUTTER_OUT_OF_ORDER = 0.7;

/** Gathers boxes into rows by their baselines; superscripts join the row they overlap. */
export function rows(boxes: Box[]): Box[][] {
  const sorted = [...boxes].sort((a, b) => a.v - b.v || a.u0 - b.u0);
  const out: { anchor: Box; boxes: Box[] }[] = [];
  for (const box of sorted) {
    const row = out.slice(-3).findLast((candidate) => overlaps(candidate.anchor, box));
    if (row) {
      row.boxes.push(box);
      if (box.size > row.anchor.size * 1.15) row.anchor = box;
    } else {
      out.push({ anchor: box, boxes: [box] });
    }
  }
  return out.map((row) => row.boxes.sort((a, b) => a.u0 - b.u0));
}

function overlaps(a: Box, b: Box): boolean {
  const top = Math.max(a.v - 0.8 * a.size, b.v - 0.8 * b.size);
  const bottom = Math.min(a.v + 0.2 * a.size, b.v + 0.2 * b.size);
  return bottom - top >= 0.5 * Math.min(a.size, b.size);
}

/** Cuts a row where a gap is wide enough to be the gutter between two columns. */
export function segments(row: Box[]): Segment[] {
  const out: Segment[] = [];
  for (const box of row) {
    const last = out.at(-1);
    const before = last?.boxes.at(-1);
    if (last && before) {
      const size = Math.max(box.size, before.size);
      const inOrder = Math.abs(box.order - before.order) <= 2;
      if (box.u0 - last.u1 < size * (inOrder ? GUTTER : GUTTER_OUT_OF_ORDER)) {
        last.boxes.push(box);
        last.u1 = Math.max(last.u1, box.u1);
        last.size = Math.max(last.size, box.size);
        last.chars += box.str.length;
        continue;
      }
    }
    out.push({
      boxes: [box],
      u0: box.u0,
      u1: box.u1,
      v: box.v,
      size: box.size,
      chars: box.str.length,
    });
  }
  return out;
}

/** The text of one line, in logical order. */
export function lineText(boxes: Box[]): string {
  let text = '';
  let before: Box | undefined;
  for (const box of logicalOrder(boxes)) {
    if (before && needsSpace(before, box, text)) text += ' ';
    text += box.str;
    before = box;
  }
  return text.replace(/[ \t\u00a0]+/g, ' ').trim();
}

/** The boxes of one line as they are read. */
export function logicalOrder(boxes: Box[]): Box[] {
  const inOrder = [...boxes].sort((a, b) => a.u0 - b.u0);
  return isRightToLeft(inOrder) ? reorder(inOrder) : inOrder;
}

function isRightToLeft(boxes: Box[]): boolean {
  let balance = 0;
  for (const box of boxes) {
    for (const char of box.str) {
      if (RTL.test(char)) balance += 1;
      else if (/[A-Za-z\u00c0-\u024f]/.test(char)) balance -= 1;
    }
  }
  return balance > 0;
}

/** From visual to logical order: right to left, with each left-to-right run kept in its own order. */
function reorder(boxes: Box[]): Box[] {
  const out: Box[] = [];
  let run: Box[] = [];
  for (const box of boxes.toReversed()) {
    if (box.rtl || RTL.test(box.str)) {
      out.push(...run, box);
      run = [];
    } else {
      run.unshift(box);
    }
  }
  return [...out, ...run];
}

function needsSpace(before: Box, box: Box, text: string): boolean {
  if (/\s$/.test(text) || /^\s/.test(box.str)) return false;
  const gap = Math.max(box.u0 - before.u1, before.u0 - box.u1);
  const size = Math.min(before.size, box.size);
  // PDF.js trims the blanks of right-to-left runs, so that the gap cannot be measured.
  if (before.rtl !== box.rtl && isLetterPair(before.str, box.str)) return true;
  const cjk = CJK.test(text.at(-1) ?? '') && CJK.test(box.str[0] ?? '');
  return gap > size * (cjk ? 0.6 : WORD_GAP);
}

function isLetterPair(before: string, after: string): boolean {
  return /[\p{L}\p{M}]$/u.test(before) && /^\p{L}/u.test(after);
}
