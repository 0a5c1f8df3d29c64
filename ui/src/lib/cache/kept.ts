import type { KeptPatch } from '../ipc/types';

/** Kept fraction of every position, one byte each: 255 is kept in every layer and KV head. */
export class KeptMap {
  #bytes = new Uint8Array(1024);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** A view that is good until the next change. */
  get values(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  apply(patch: KeptPatch): void {
    const binary = atob(patch.values);
    const end = patch.start + binary.length;
    this.#grow(end);
    for (let i = 0; i < binary.length; i += 1) this.#bytes[patch.start + i] = binary.charCodeAt(i);
    this.#length = Math.max(this.#length, end);
  }

  /** Going back in a conversation drops what stood after it. */
  truncate(length: number): void {
    if (length < this.#length) {
      this.#bytes.fill(0, length, this.#length);
      this.#length = length;
    }
  }

  #grow(length: number): void {
    if (length <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(length, this.#bytes.length * 2));
    larger.set(this.#bytes);
    this.#bytes = larger;
  }
}
