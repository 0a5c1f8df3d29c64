import { expect, test } from 'vitest';
import { decodeText } from '../../src/lib/text/decode';

/** The same numbers each time. */
function* numbers(seed: number): Generator<number, never> {
  let x = seed;
  for (;;) {
    x = (Math.imul(x, 1_664_525) + 1_013_904_223) >>> 0;
    yield x >>> 8;
  }
}

test('whatever a text file holds, it becomes text of about its length', () => {
  const chance = numbers(7);
  const next = (n: number) => chance.next().value % n;
  const heads = [[], [0xff, 0xfe], [0xfe, 0xff], [0xef, 0xbb, 0xbf], [0xff], [0xed, 0xa0, 0x80]];
  for (let run = 0; run < 2000; run += 1) {
    const head = heads[next(heads.length)] ?? [];
    const body = Array.from({ length: next(200) }, () => next(256));
    const { buffer } = new Uint8Array([...head, ...body]);
    const text = decodeText(buffer);
    expect(text.length).toBeLessThanOrEqual(buffer.byteLength);
    expect(text).not.toMatch(/[\0\r]/);
    // No half of a character is left, which would break everything that comes after.
    expect(text.isWellFormed()).toBe(true);
  }
});
