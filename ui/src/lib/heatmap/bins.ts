import { overlap } from '../cache/ranges';
import type { Held } from './states';

/** What a bin of positions is drawn as. */
export const Kind = {
  /** Past the end of the context. */
  Empty: 0,
  /** Part of the conversation that the model has not read yet. */
  Unread: 1,
  /** In the hot cache, at least in part. */
  Kept: 2,
  /** In the recent window, and whole. */
  Recent: 3,
  /** Pinned, and whole. */
  Pinned: 4,
  /** Mostly in the store only. */
  Store: 5,
  /** Mostly in neither. */
  Forgotten: 6,
} as const;
export type Kind = number;

export interface Bins {
  kind: Uint8Array;
  /** Mean kept fraction, 0 to 1. */
  kept: Float32Array;
  /** Positions that the strip has room for; more than there are, so that it does not shift with every token. */
  room: number;
}

export interface BinInput extends Held {
  /** Tokens of the conversation, read or not. */
  total: number;
  /** First position of the recent window. */
  recentFrom: number;
}

/** Below this mean a bin whose most positions are away is drawn as away: its bar would be a line as well. */
const FAINT = 1 / 16;

/** Room grows in steps of a quarter. */
export function roomFor(total: number): number {
  let room = 128;
  while (room < total) room = Math.ceil((room * 1.25) / 64) * 64;
  return room;
}

/** First position of a bin. */
export function binStart(bin: number, count: number, room: number): number {
  return Math.floor((bin * room) / count);
}

/** What `start..end` is drawn as, all of it read. */
export function measure(input: BinInput, start: number, end: number): { kind: Kind; kept: number } {
  let sum = 0;
  let cold = 0;
  for (let p = start; p < end; p += 1) {
    const value = input.kept[p] ?? 0;
    sum += value;
    if (value === 0) cold += 1;
  }
  const kept = sum / (255 * (end - start));
  const most = (ranges: Held['pinned']) => 2 * overlap(ranges, start, end) > end - start;
  let kind: Kind = Kind.Kept;
  if (kept > 0.999 && most(input.pinned)) kind = Kind.Pinned;
  else if (kept > 0.999 && start >= input.recentFrom) kind = Kind.Recent;
  else if (most(input.forgotten)) kind = Kind.Forgotten;
  else if (2 * cold > end - start && kept < FAINT) kind = Kind.Store;
  return { kind, kept };
}

/** Puts up to millions of positions into as many bins as the strip has pixels. */
export function bin(input: BinInput, count: number): Bins {
  const room = roomFor(input.total);
  const kind = new Uint8Array(count);
  const kept = new Float32Array(count);
  for (let i = 0; i < count; i += 1) {
    const start = binStart(i, count, room);
    const end = Math.max(start + 1, binStart(i + 1, count, room));
    if (start >= input.total) break;
    const read = Math.min(end, input.seen, input.kept.length);
    if (start >= read) {
      kind[i] = Kind.Unread;
      continue;
    }
    const one = measure(input, start, read);
    kind[i] = one.kind;
    kept[i] = one.kept;
  }
  return { kind, kept, room };
}
