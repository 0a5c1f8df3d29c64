/**
 * Finds what the model reads in what the window shows. The two spell the same, but for white space, Markdown's
 * marks, hyphens at the ends of lines and forms of the same letter; so they are walked side by side, and where
 * they part, the nearest place is sought where both go on alike.
 */

/** A text without what may differ, and the place of each character of it in the original. */
export interface Folded {
  chars: Uint16Array;
  /** Index of the UTF-16 unit that it came from. */
  at: Uint32Array;
}

const IGNORED = /[\s\u00ad\u200b-\u200d\ufeff]/;
/** Plain letters and figures are most of any text. */
const PLAIN = /^[!-~]$/;

export function fold(text: string): Folded {
  let chars = new Uint16Array(text.length + 64);
  let at = new Uint32Array(text.length + 64);
  let n = 0;
  for (let i = 0; i < text.length; i += 1) {
    const char = text[i] ?? '';
    if (IGNORED.test(char)) continue;
    const forms = PLAIN.test(char) ? char : char.normalize('NFKD').replace(/\s/g, '');
    if (n + forms.length > chars.length) {
      chars = larger(chars, new Uint16Array(2 * chars.length));
      at = larger(at, new Uint32Array(2 * at.length));
    }
    for (let k = 0; k < forms.length; k += 1) {
      chars[n] = forms.charCodeAt(k);
      at[n] = i;
      n += 1;
    }
  }
  return { chars: chars.subarray(0, n), at: at.subarray(0, n) };
}

function larger<T extends Uint16Array | Uint32Array>(from: T, to: T): T {
  to.set(from);
  return to;
}

/** Characters that have to agree before the texts are taken to go on alike: the more, the more was skipped. */
const agree = (skip: number) => Math.min(6, 3 + (skip >> 2));
/** How far ahead every way to go on is tried, and after that the first that goes on for so long. */
const REACH = 60;
const FAR = 8;

/**
 * For each UTF-16 unit of `shown`, the index of the unit of `read` that stands for it; -1 where there is none.
 * White space goes with what stands before it.
 */
export function align(shown: string, read: string): Int32Array {
  const out = new Int32Array(shown.length).fill(-1);
  if (shown === read) {
    for (let i = 0; i < out.length; i += 1) out[i] = i;
    return out;
  }
  const a = fold(shown);
  const b = fold(read);
  let far: FarAhead | undefined;
  let i = 0;
  let j = 0;
  while (i < a.chars.length && j < b.chars.length) {
    if (a.chars[i] !== b.chars[j]) {
      const near = ahead(a.chars, i, b.chars, j);
      far ??= new FarAhead(b.chars);
      const next = near ? [i + near[0], j + near[1]] : far.find(a.chars, i, j);
      [i, j] = [next?.[0] ?? Infinity, next?.[1] ?? Infinity];
      continue;
    }
    // Of a letter that is read as two, where the first of them stands.
    if ((out[a.at[i] ?? 0] ?? 0) < 0) out[a.at[i] ?? 0] = b.at[j] ?? 0;
    i += 1;
    j += 1;
  }
  let last = -1;
  for (let k = 0; k < shown.length; k += 1) {
    if ((out[k] ?? -1) >= 0) last = out[k] ?? -1;
    else if (IGNORED.test(shown[k] ?? '')) out[k] = last;
  }
  return out;
}

/** The least that has to be skipped on both sides, where that is little. */
function ahead(a: Uint16Array, i: number, b: Uint16Array, j: number): [number, number] | null {
  for (let skip = 1; skip <= REACH; skip += 1) {
    for (let di = 0; di <= skip; di += 1) {
      if (alike(a, i + di, b, j + skip - di, agree(skip))) return [di, skip - di];
    }
  }
  return null;
}

/** Every place of a text by the characters that follow there. */
class FarAhead {
  readonly #places = new Map<string, number[]>();

  constructor(b: Uint16Array) {
    for (let j = 0; j + FAR <= b.length; j += 1) {
      const key = keyAt(b, j);
      const places = this.#places.get(key);
      if (places) places.push(j);
      else this.#places.set(key, [j]);
    }
  }

  /** The next characters of `a` that come in the other text at `j` or after it, and where. */
  find(a: Uint16Array, i: number, j: number): [number, number] | null {
    for (let k = i; k + FAR <= a.length; k += 1) {
      const place = this.#places.get(keyAt(a, k))?.find((at) => at >= j);
      if (place !== undefined) return [k, place];
    }
    return null;
  }
}

const keyAt = (chars: Uint16Array, at: number) =>
  String.fromCharCode(...chars.subarray(at, at + FAR));

function alike(a: Uint16Array, i: number, b: Uint16Array, j: number, wanted: number): boolean {
  const n = Math.min(wanted, a.length - i, b.length - j);
  if (n <= 0) return false;
  for (let k = 0; k < n; k += 1) if (a[i + k] !== b[j + k]) return false;
  // At the very end less has to do.
  return n === wanted || (i + n === a.length && j + n === b.length);
}
