import { expect, test } from 'vitest';
import { looks } from '../../src/lib/heatmap/recalled';
import { Outline } from '../../src/lib/heatmap/sources';
import type { Span } from '../../src/lib/ipc/types';
import { message } from '../preview/api';

const guide = { id: 1, name: 'guide.pdf', copied: true, pages: 20, tokens: 200 };
const notes = { id: 2, name: 'notes.md', copied: false, pages: 1, tokens: 50 };
const page = (start: number, document: number, page: number, length = 50): Span => ({
  start,
  end: start + length,
  message: 0,
  kind: { type: 'page', document, page },
});
const spans: Span[] = [
  { start: 0, end: 10, message: null, kind: { type: 'template' } },
  page(10, 0, 3),
  page(60, 0, 4),
  page(110, 0, 17),
  { start: 160, end: 180, message: 0, kind: { type: 'text', role: 'user' } },
  { start: 180, end: 190, message: null, kind: { type: 'template' } },
  { start: 190, end: 230, message: 1, kind: { type: 'text', role: 'assistant' } },
];
const chat = (...documents: (typeof guide)[]) => [
  message(1, 'user', 'What?', { documents }),
  message(2, 'assistant', 'That.'),
];

test('passages are named by page and turn, most entries first', () => {
  const found = looks(
    [
      { start: 120, end: 140, entries: 40 },
      { start: 200, end: 210, entries: 90 },
      { start: 15, end: 20, entries: 30 },
      { start: 30, end: 35, entries: 30 },
    ],
    new Outline(spans, chat(guide)),
  );
  expect(found.map((look) => [look.label, look.entries, look.at])).toEqual([
    ['answer 1', 90, 200],
    ['p. 3', 60, 15],
    ['p. 17', 40, 120],
  ]);
  expect(found.map((look) => look.name)).toContain('guide.pdf, page 17');
});

test('a passage over the edge of a page belongs to both, by how much of it lies in each', () => {
  const found = looks([{ start: 50, end: 90, entries: 80 }], new Outline(spans, chat(guide)));
  expect(found.map((look) => [look.label, look.entries, look.at])).toEqual([
    ['p. 4', 60, 60],
    ['p. 3', 20, 50],
  ]);
});

test('the template is not worth a word', () => {
  expect(looks([{ start: 182, end: 188, entries: 9 }], new Outline(spans, chat(guide)))).toEqual(
    [],
  );
});

test('several documents are told apart, and one without pages goes by its name', () => {
  const both = new Outline([page(0, 0, 3), page(50, 1, 1)], chat(guide, notes));
  const found = looks([{ start: 0, end: 100, entries: 10 }], both);
  expect(found.map((look) => [look.document, look.label])).toEqual([
    ['guide.pdf', 'p. 3'],
    [null, 'notes.md'],
  ]);
});
