import { Kind, measure, type BinInput } from './bins';
import { dots, hatch, SHADES, shadesOf, type Palette } from './draw';
import type { Word } from './textmap';

/** A word's place, relative to the canvas that shades it. */
export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
  positions: Word['positions'];
}

/** Text has to stay readable on it. */
const TINT = 0.34;

/** Where words stand, relative to `frame`. A word that is broken over two lines has two boxes. */
export function boxesOf(words: Word[], frame: Element): Box[] {
  const origin = frame.getBoundingClientRect();
  const range = document.createRange();
  const boxes: Box[] = [];
  for (const { node, from, to, positions } of words) {
    range.setStart(node, from);
    range.setEnd(node, to);
    for (const rect of range.getClientRects()) {
      if (rect.width < 1) continue;
      // On whole pixels, so that neighbours neither overlap nor leave a seam.
      const last = boxes.at(-1);
      const y = rect.top - origin.top;
      const left = Math.round(rect.left - origin.left);
      const end = last && Math.abs(last.y - y) < 1 ? last.x + last.width : -Infinity;
      const x = Math.abs(left - end) <= 1 ? end : left;
      const width = Math.round(rect.right - origin.left) - x;
      boxes.push({ x, y, width, height: rect.height, positions });
    }
  }
  return boxes;
}

/** One box for what stands next to each other on a line. */
export function linesOf(boxes: Box[]): Omit<Box, 'positions'>[] {
  const lines: Omit<Box, 'positions'>[] = [];
  for (const { x, y, width, height } of boxes) {
    const last = lines.at(-1);
    if (
      last &&
      Math.abs(last.y - y) < height / 2 &&
      x >= last.x &&
      x - last.x - last.width < height
    ) {
      last.width = x + width - last.x;
    } else lines.push({ x, y, width, height });
  }
  return lines;
}

/** Shades text as the strip does: what is held stands as tall as its share, every state has a form of its own. */
export function drawShade(
  ctx: CanvasRenderingContext2D,
  boxes: Box[],
  held: BinInput,
  palette: Palette,
): void {
  const shades = shadesOf(palette);
  const seen = Math.min(held.seen, held.kept.length);
  for (const { x, y, width, height, positions } of boxes) {
    const end = Math.min(positions[1], seen);
    const line = y + height - 1.5;
    if (end <= positions[0]) {
      ctx.fillStyle = palette.unread;
      dots(ctx, x, line, width, 4, 1.5);
      continue;
    }
    const { kind, kept } = measure(held, positions[0], end);
    if (kind === Kind.Forgotten) {
      ctx.globalAlpha = 0.55;
      hatch(ctx, x, y, width, height, palette.forgotten);
    } else if (kind === Kind.Store) {
      ctx.fillStyle = palette.store;
      ctx.fillRect(x, line, width, 1);
    } else {
      const level = kind === Kind.Kept ? Math.max(1, Math.round(kept * SHADES)) : SHADES;
      const bar = (height * level) / SHADES;
      const colour =
        kind === Kind.Kept ? shades[level] : palette[kind === Kind.Pinned ? 'pinned' : 'recent'];
      ctx.fillStyle = colour ?? palette.keptHigh;
      ctx.globalAlpha = TINT;
      ctx.fillRect(x, y + height - bar, width, bar);
      ctx.globalAlpha = 1;
      if (kind === Kind.Pinned) ctx.fillRect(x, line - 0.5, width, 2);
      else if (kind === Kind.Recent) dots(ctx, x, line, width, 4, 1.5);
    }
    ctx.globalAlpha = 1;
  }
}

/** How many words are drawn as what, for those who do not see it. */
export function tally(boxes: Box[], held: BinInput): Map<Kind, number> {
  const counts = new Map<Kind, number>();
  const seen = Math.min(held.seen, held.kept.length);
  for (const { positions } of boxes) {
    const end = Math.min(positions[1], seen);
    const kind = end > positions[0] ? measure(held, positions[0], end).kind : Kind.Unread;
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return counts;
}

/** Mean kept share of the words, in percent. */
export function shareOf(boxes: Box[], held: BinInput): number {
  const seen = Math.min(held.seen, held.kept.length);
  const read = boxes.filter(({ positions }) => positions[0] < seen);
  const sum = read.reduce(
    (all, { positions: [start, end] }) => all + measure(held, start, Math.min(end, seen)).kept,
    0,
  );
  return (100 * sum) / Math.max(1, read.length);
}
