import type { Pieces } from '../ipc/types';

/** A stretch of the context as text, with the position of each token in it. */
export class Stretch {
  readonly text: string;
  /** Where each token begins in the text, and where the last one ends. */
  readonly #starts: Uint32Array;

  constructor(
    /** Position of the first token. */
    readonly start: number,
    pieces: Pieces,
  ) {
    this.text = pieces.text;
    this.#starts = new Uint32Array(pieces.lengths.length + 1);
    pieces.lengths.forEach((length, i) => {
      this.#starts[i + 1] = (this.#starts[i] ?? 0) + length;
    });
  }

  /** One past the last position. */
  get end(): number {
    return this.start + this.#starts.length - 1;
  }

  /** The position whose token spells the unit at an index of the text. */
  positionAt(index: number): number {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#starts[middle] ?? 0) <= index) low = middle;
      else high = middle - 1;
    }
    return Math.min(this.start + low, this.end - 1);
  }

  /** The part of it whose text lies around `from..to`. */
  slice(from: number, to: number): Stretch {
    const first = this.positionAt(from) - this.start;
    const last = this.positionAt(Math.max(from, to - 1)) - this.start + 1;
    const starts = [...this.#starts.subarray(first, last + 1)];
    const lengths = starts.slice(1).map((end, i) => end - (starts[i] ?? 0));
    const text = this.text.slice(starts[0], starts.at(-1));
    return new Stretch(this.start + first, { text, lengths });
  }

  /** Where the text of a position begins. */
  indexOf(position: number): number {
    const token = Math.max(0, Math.min(position - this.start, this.#starts.length - 1));
    return this.#starts[token] ?? 0;
  }
}

/** Stretches that were asked for, until the conversation changes under them. */
export class StretchCache {
  readonly #known = new Map<string, Promise<Stretch>>();

  get(start: number, end: number, fetch: () => Promise<Pieces>): Promise<Stretch> {
    const key = `${start}-${end}`;
    let stretch = this.#known.get(key);
    if (!stretch) {
      stretch = fetch().then((pieces) => new Stretch(start, pieces));
      this.#known.set(key, stretch);
      // What failed may be asked for again.
      stretch.catch(() => this.#known.delete(key));
    }
    return stretch;
  }

  /** What stands at `position` and after it is not what it was. */
  dropFrom(position: number): void {
    for (const key of this.#known.keys()) {
      if (Number(key.split('-')[1]) > position) this.#known.delete(key);
    }
  }
}
