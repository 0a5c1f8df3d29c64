import { Kind, type Bins } from './bins';
import type { Mark } from './sources';

/** Colours of the strip, read from the style sheet. */
export interface Palette {
  track: string;
  store: string;
  forgotten: string;
  unread: string;
  keptLow: string;
  keptHigh: string;
  recent: string;
  pinned: string;
  turn: string;
  page: string;
  label: string;
  cursor: string;
}

export interface Geometry {
  /** In CSS pixels. */
  width: number;
  rows: number;
  barHeight: number;
  rowHeight: number;
  dpr: number;
}

/** Shades between evicted and kept; height says the same, so that colour is never needed. */
export const SHADES = 16;

/** Height of a bar at the usual size of type, in CSS pixels. */
export const BAR_AT_16PX = 14;

export function stripHeight({ rows, rowHeight }: Geometry): number {
  return rows * rowHeight;
}

/** Bins that the strip has: one for each CSS pixel of every row. */
export function binCount({ width, rows }: Geometry): number {
  return Math.max(1, Math.floor(width)) * rows;
}

/**
 * Draws the context row by row, like lines of text. The height of a bar is the kept fraction, and each
 * state has a form of its own: pinned positions are underlined, recent ones dotted below; what is only in
 * the store is a thin line, what is forgotten is hatched, and what is not read yet are dots.
 */
export function drawStrip(
  ctx: CanvasRenderingContext2D,
  bins: Bins,
  marks: Mark[],
  palette: Palette,
  geometry: Geometry,
  cursor: number | null,
): void {
  const { rows, barHeight, rowHeight, dpr } = geometry;
  const width = Math.max(1, Math.floor(geometry.width));
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.clearRect(0, 0, width, rows * rowHeight);
  const shades = shadesOf(palette);
  const top = rowHeight - barHeight - 3;

  for (let row = 0; row < rows; row += 1) {
    const y = row * rowHeight + top;
    ctx.fillStyle = palette.track;
    ctx.fillRect(0, y, width, barHeight);
    // Runs of equal bins are one rectangle: a short context has few.
    let x = 0;
    while (x < width) {
      const i = row * width + x;
      const kind = bins.kind[i] ?? Kind.Empty;
      const level = Math.round((bins.kept[i] ?? 0) * SHADES);
      let end = x + 1;
      while (
        end < width &&
        bins.kind[row * width + end] === kind &&
        Math.round((bins.kept[row * width + end] ?? 0) * SHADES) === level
      ) {
        end += 1;
      }
      drawRun(ctx, kind, level, x, y, end - x, barHeight, palette, shades);
      x = end;
    }
  }
  drawMarks(ctx, bins, marks, palette, { ...geometry, width }, top);
  if (cursor !== null) {
    const i = Math.floor((cursor * width * rows) / bins.room);
    ctx.fillStyle = palette.cursor;
    ctx.fillRect(
      (i % width) - 0.75,
      Math.floor(i / width) * rowHeight + top - 2,
      1.5,
      barHeight + 4,
    );
  }
}

function drawRun(
  ctx: CanvasRenderingContext2D,
  kind: Kind,
  level: number,
  x: number,
  y: number,
  width: number,
  height: number,
  palette: Palette,
  shades: string[],
): void {
  if (kind === Kind.Empty) return;
  if (kind === Kind.Unread) {
    ctx.fillStyle = palette.unread;
    dots(ctx, x, y + height / 2 - 0.5, width, 4, 1.5);
    return;
  }
  if (kind === Kind.Store) {
    ctx.fillStyle = palette.store;
    ctx.fillRect(x, y + height - 1, width, 1);
    return;
  }
  if (kind === Kind.Kept || kind === Kind.Forgotten) {
    if (kind === Kind.Forgotten) hatch(ctx, x, y, width, height, palette.forgotten);
    if (kind === Kind.Forgotten && level === 0) return;
    // Never as flat as the line of the store.
    const bar = Math.max(3, (height * level) / SHADES);
    ctx.fillStyle = shades[level] ?? palette.keptHigh;
    ctx.fillRect(x, y + height - bar, width, bar);
    return;
  }
  ctx.fillStyle = kind === Kind.Pinned ? palette.pinned : palette.recent;
  ctx.fillRect(x, y, width, height);
  if (kind === Kind.Pinned) ctx.fillRect(x, y + height + 1, width, 2);
  else dots(ctx, x, y + height + 1, width, 3, 1);
}

/** Dots whose places do not depend on where a run begins, so that neighbouring runs go on alike. */
export function dots(
  ctx: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  apart: number,
  size: number,
): void {
  for (let dot = Math.ceil(x / apart) * apart; dot < x + width; dot += apart) {
    ctx.fillRect(dot, y, size, size);
  }
}

/** Distance between the lines of the hatching, in CSS pixels. */
const HATCH = 4;

export function hatch(
  ctx: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  colour: string,
): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.beginPath();
  for (let at = Math.floor((x - height) / HATCH) * HATCH; at < x + width; at += HATCH) {
    ctx.moveTo(at, y + height);
    ctx.lineTo(at + height, y);
  }
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.25;
  ctx.stroke();
  ctx.restore();
}

function drawMarks(
  ctx: CanvasRenderingContext2D,
  bins: Bins,
  marks: Mark[],
  palette: Palette,
  { width, rows, rowHeight, barHeight }: Geometry,
  top: number,
): void {
  ctx.font = `${(9 * barHeight) / BAR_AT_16PX}px "Inter Variable", sans-serif`;
  ctx.textBaseline = 'alphabetic';
  const lastTick = new Float32Array(rows).fill(-Infinity);
  const taken: { row: number; from: number; to: number }[] = [];
  for (const mark of marks) {
    const i = Math.floor((mark.at * width * rows) / bins.room);
    const row = Math.floor(i / width);
    if (row >= rows) continue;
    const x = i % width;
    const y = row * rowHeight + top;
    const turn = mark.kind === 'turn';
    const length = labelWidth(ctx, mark.label);
    // At the end of a row the label stands before its mark.
    const from = x + 3 + length > width ? x - 3 - length : x + 3;
    const to = from + length;
    const room = turn ? 6 : 12;
    const blocked = taken.some((t) => t.row === row && from - room < t.to && to + room > t.from);
    ctx.fillStyle = turn ? palette.turn : palette.page;
    if (turn) {
      ctx.fillRect(x, blocked ? y : y - 9, 1.5, barHeight + (blocked ? 0 : 9));
    } else if (!blocked || x - (lastTick[row] ?? 0) >= 6) {
      ctx.fillRect(x, y - 3, 1, 4);
      lastTick[row] = x;
    }
    if (blocked) continue;
    taken.push({ row, from, to });
    ctx.fillStyle = turn ? palette.turn : palette.label;
    ctx.fillText(mark.label, from, y - 3);
  }
}

/** Measuring text is slow, and there are few different labels. */
const widths = new Map<string, number>();

function labelWidth(ctx: CanvasRenderingContext2D, label: string): number {
  const key = `${ctx.font} ${label}`;
  let width = widths.get(key);
  if (width === undefined) {
    width = ctx.measureText(label).width;
    if (widths.size > 5000) widths.clear();
    widths.set(key, width);
  }
  return width;
}

export function shadesOf({ keptLow, keptHigh }: Palette): string[] {
  return Array.from({ length: SHADES + 1 }, (_, i) => mix(keptLow, keptHigh, i / SHADES));
}

/** Mixes two `#rrggbb` colours. */
export function mix(a: string, b: string, share: number): string {
  const channel = (hex: string, i: number) => parseInt(hex.slice(1 + 2 * i, 3 + 2 * i), 16);
  return `#${[0, 1, 2]
    .map((i) => Math.round(channel(a, i) * (1 - share) + channel(b, i) * share))
    .map((value) => value.toString(16).padStart(2, '0'))
    .join('')}`;
}

/** The position under a point of the strip; `null` where nothing stands. */
export function positionAt(
  x: number,
  y: number,
  bins: Bins,
  { width, rows, rowHeight }: Geometry,
): number | null {
  const w = Math.max(1, Math.floor(width));
  const row = Math.floor(y / rowHeight);
  if (row < 0 || row >= rows || x < 0 || x >= w) return null;
  const i = row * w + Math.floor(x);
  return (bins.kind[i] ?? Kind.Empty) === Kind.Empty
    ? null
    : Math.floor((i * bins.room) / (w * rows));
}

/** The row in which a position stands. */
export function rowOf(position: number, room: number, { width, rows }: Geometry): number {
  const w = Math.max(1, Math.floor(width));
  return Math.min(rows - 1, Math.floor(Math.floor((position * w * rows) / room) / w));
}
