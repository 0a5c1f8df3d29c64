import { expect, test } from 'vitest';
import { decodeText } from '../../src/lib/text/decode';

const of = (...bytes: number[]) => new Uint8Array(bytes).buffer;

test('text files are read in the encoding they have', () => {
  expect(decodeText(new TextEncoder().encode('naïve\r\ntext').buffer)).toBe('naïve\ntext');
  expect(decodeText(of(0xef, 0xbb, 0xbf, 0x61))).toBe('a');
  expect(decodeText(of(0xff, 0xfe, 0xe9, 0x00))).toBe('é');
  expect(decodeText(of(0xfe, 0xff, 0x00, 0xe9))).toBe('é');
  expect(decodeText(of(0x63, 0x61, 0x66, 0xe9))).toBe('café');
});
