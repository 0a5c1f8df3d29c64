/** What a bin of positions is drawn as. */
export const Kind = {
  /** Past the end of the context. */
  Empty: 0,
  /** Part of the conversation that the model has not read yet. */
  Unread: 1,
  /** Kept by what the model gave it, or evicted. */
  Scored: 2,
  /** In the recent window, and whole. */
  Recent: 3,
  /** Template and system prompt, and whole. */
  Pinned: 4,
} as const;
export type Kind = number;

export interface Bins {
  kind: Uint8Array;
  /** Mean kept fraction, 0 to 1. */
  kept: Float32Array;
  /** Positions that the strip has room for; more than there are, so that it does not shift with every token. */
  room: number;
}

export interface BinInput {
  kept: Uint8Array;
  /** Tokens of the conversation, read or not. */
  total: number;
  /** Tokens that have been through the model. */
  seen: number;
  /** First position of the recent window. */
  recentFrom: number;
  /** Sorted ranges `[start, end)` that are pinned. */
  pinned: [number, number][];
}

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

/** Puts up to millions of positions into as many bins as the strip has pixels. */
export function bin(input: BinInput, count: number): Bins {
  const room = roomFor(input.total);
  const kind = new Uint8Array(count);
  const kept = new Float32Array(count);
  let range = 0;
  for (let i = 0; i < count; i += 1) {
    const start = binStart(i, count, room);
    const end = Math.max(start + 1, binStart(i + 1, count, room));
    if (start >= input.total) break;
    const read = Math.min(end, input.seen, input.kept.length);
    if (start >= read) {
      kind[i] = Kind.Unread;
      continue;
    }
    let sum = 0;
    for (let p = start; p < read; p += 1) sum += input.kept[p] ?? 0;
    const mean = sum / (255 * (read - start));
    kept[i] = mean;
    while ((input.pinned[range]?.[1] ?? Infinity) <= start) range += 1;
    const pin = input.pinned[range];
    const pinnedHere = pin ? Math.min(read, pin[1]) - Math.max(start, pin[0]) : 0;
    if (mean > 0.999 && pinnedHere * 2 > read - start) kind[i] = Kind.Pinned;
    else if (mean > 0.999 && start >= input.recentFrom) kind[i] = Kind.Recent;
    else kind[i] = Kind.Scored;
  }
  return { kind, kept, room };
}
