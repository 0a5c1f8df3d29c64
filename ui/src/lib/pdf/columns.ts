import { rows, segments, type Segment } from './lines';
import type { Box } from './geometry';

/** One line in reading order. */
export interface Line {
  boxes: Box[];
  v: number;
  size: number;
  /** Opens a new block: a column, or text after a heading that spans the columns. */
  opensBlock: boolean;
}

/** More lines than this share may cross a gutter (headings, figures, wide tables). */
const MAX_CROSSING = 0.6;
const MIN_LINES = 3;
/** The rows of a form stand further apart than lines of prose do, in units of the type size. */
const MAX_LEADING = 2.4;

/** Puts boxes into lines, columns one after the other, what spans them in between. */
export function readingOrder(boxes: Box[]): Line[] {
  const lines: Line[] = [];
  read(rows(boxes).flatMap(segments), lines, 0);
  return lines;
}

function read(region: Segment[], out: Line[], depth: number): void {
  const gutter = depth < 4 ? findGutter(region) : undefined;
  if (gutter === undefined) {
    const start = out.length;
    for (const row of rows(region.flatMap((segment) => segment.boxes))) {
      const tallest = row.reduce((a, b) => (b.size > a.size ? b : a));
      out.push({ boxes: row, v: tallest.v, size: tallest.size, opensBlock: out.length === start });
    }
    return;
  }
  // What crosses the gutter cuts the region into bands; each band is read column by column.
  const crossing = region.filter((s) => s.u0 < gutter && s.u1 > gutter).sort((a, b) => a.v - b.v);
  const beside = region.filter((s) => s.u1 <= gutter || s.u0 >= gutter);
  let spanning: Segment[] = [];
  let top = -Infinity;
  for (let i = 0; i <= crossing.length; i += 1) {
    const bottom = crossing[i]?.v ?? Infinity;
    const band = beside.filter((s) => s.v > top && s.v <= bottom);
    if (band.length > 0) {
      if (spanning.length > 0) read(spanning, out, 4);
      spanning = [];
      const left = band.filter((s) => s.u1 <= gutter);
      const right = band.filter((s) => s.u0 >= gutter);
      if (left.length > 0) read(left, out, depth + 1);
      if (right.length > 0) read(right, out, depth + 1);
    }
    const next = crossing[i];
    if (next) spanning.push(next);
    top = bottom;
  }
  if (spanning.length > 0) read(spanning, out, 4);
}

/**
 * Where a column ends and the next begins, if this region has columns of prose. The columns of a
 * table have gutters too, but its cells are short or do not fill their column: it is read row by row.
 */
function findGutter(region: Segment[]): number | undefined {
  if (region.length < 2 * MIN_LINES) return undefined;
  const left = Math.min(...region.map((s) => s.u0));
  const right = Math.max(...region.map((s) => s.u1));
  const size = median(region.map((s) => s.size));
  const step = size / 4;
  const bins = Math.ceil((right - left) / step);
  if (bins < 8 || bins > 20_000) return undefined;
  const covered = new Uint32Array(bins);
  for (const segment of region) {
    const first = Math.max(0, Math.floor((segment.u0 - left) / step));
    const last = Math.min(bins - 1, Math.ceil((segment.u1 - left) / step) - 1);
    for (let bin = first; bin <= last; bin += 1) covered[bin] = (covered[bin] ?? 0) + 1;
  }
  const candidates: { at: number; crossing: number; width: number }[] = [];
  for (let bin = 1; bin < bins - 1;) {
    let end = bin;
    while (end + 1 < bins && covered[end + 1] === covered[bin]) end += 1;
    const crossing = covered[bin] ?? 0;
    const isValley = (covered[bin - 1] ?? 0) > crossing && (covered[end + 1] ?? 0) > crossing;
    if (isValley && end - bin + 1 >= 2 && crossing <= MAX_CROSSING * region.length) {
      candidates.push({ at: left + ((bin + end + 1) / 2) * step, crossing, width: end - bin + 1 });
    }
    bin = end + 1;
  }
  candidates.sort((a, b) => a.crossing - b.crossing || b.width - a.width);
  return candidates.slice(0, 6).find(({ at }) => separatesProse(region, at, candidates))?.at;
}

function separatesProse(region: Segment[], gutter: number, all: { at: number }[]): boolean {
  const left = region.filter((s) => s.u1 <= gutter);
  const right = region.filter((s) => s.u0 >= gutter);
  if (left.length < MIN_LINES || right.length < MIN_LINES) return false;
  const [leftTop, leftBottom] = extent(left);
  const [rightTop, rightBottom] = extent(right);
  if (Math.min(leftBottom, rightBottom) - Math.max(leftTop, rightTop) <= 0) return false;
  // With three columns one side holds two: then it is enough that each of its lines fills one of them.
  const more = all.length > 1;
  return isProse(left, more) && isProse(right, more);
}

function isProse(side: Segment[], mayHoldMore: boolean): boolean {
  const [u0, u1] = [Math.min(...side.map((s) => s.u0)), Math.max(...side.map((s) => s.u1))];
  const width = u1 - u0;
  const share = mayHoldMore ? 0.28 : 0.55;
  const filled = side.filter((s) => s.u1 - s.u0 >= share * width).length;
  const chars = side.reduce((sum, s) => sum + s.chars, 0) / side.length;
  return filled >= side.length / 2 && chars >= 14 && leading(side) <= MAX_LEADING;
}

/** Distance from line to line in units of the type size. */
function leading(side: Segment[]): number {
  const baselines = side.map((s) => s.v).sort((a, b) => a - b);
  const size = median(side.map((s) => s.size));
  const steps = baselines.slice(1).map((v, i) => v - (baselines[i] ?? 0));
  return median(steps.filter((step) => step > 0.5 * size)) / size;
}

function extent(side: Segment[]): [number, number] {
  return [Math.min(...side.map((s) => s.v)), Math.max(...side.map((s) => s.v))];
}

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1] ?? 1;
}
