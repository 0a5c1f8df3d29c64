import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'svelte/compiler';
import { expect, test } from 'vitest';

const SRC = path.resolve(import.meta.dirname, '../../src');

/** What people read or hear though it is an attribute. */
const SPOKEN = new Set([
  'aria-label',
  'aria-description',
  'aria-valuetext',
  'title',
  'placeholder',
  'alt',
]);

/** Names, units and keys, which no language translates. */
const NAMES = /\b(Cistern|GiB|Ctrl|Esc|Enter|Shift|Del|F2)\b/g;

const isWord = (text: string) => /\p{L}{2}/u.test(text.replace(NAMES, ''));

/** Texts that stand in a template instead of a catalogue. */
function literals(node: unknown, attribute?: string): string[] {
  if (Array.isArray(node)) return node.flatMap((one) => literals(one, attribute));
  if (typeof node !== 'object' || node === null) return [];
  const { type, name, data, ...rest } = node as Record<string, unknown>;
  if (type === 'Script' || type === 'StyleSheet' || type === 'Comment') return [];
  if (type === 'Text') {
    const shown = attribute === undefined || SPOKEN.has(attribute);
    return shown && isWord(String(data)) ? [String(data).trim()] : [];
  }
  const within = type === 'Attribute' || type === 'StyleDirective' ? String(name) : attribute;
  return Object.values(rest).flatMap((inner) => literals(inner, within));
}

test('every sentence of the window comes from the catalogue', () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.svelte'),
  );
  expect(files.length).toBeGreaterThan(20);
  const found = files.flatMap((file) => {
    const { fragment } = parse(readFileSync(path.join(SRC, file), 'utf8'), { modern: true });
    return literals(fragment).map((text) => `${file}: ${text}`);
  });
  expect(found).toEqual([]);
});
