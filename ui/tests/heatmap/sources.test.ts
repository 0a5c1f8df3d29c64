import { describe, expect, test } from 'vitest';
import { leftOut, Outline } from '../../src/lib/heatmap/sources';
import type { Span } from '../../src/lib/ipc/types';
import { message } from '../preview/api';

const messages = [
  message(1, 'user', 'What?', { documents: [{ name: 'guide.pdf', pages: 2, tokens: 40 }] }),
  message(2, 'assistant', 'That.'),
];
const spans: Span[] = [
  { start: 0, end: 10, message: 0, kind: { type: 'text', role: 'system' } },
  { start: 10, end: 15, message: null, kind: { type: 'template' } },
  { start: 15, end: 35, message: 1, kind: { type: 'page', document: 0, page: 1 } },
  { start: 35, end: 55, message: 1, kind: { type: 'page', document: 0, page: 2 } },
  { start: 55, end: 60, message: 1, kind: { type: 'text', role: 'user' } },
];

describe('the context in the words of the chat', () => {
  const outline = new Outline(spans, messages);

  test('names what stands at a position, a hidden system prompt notwithstanding', () => {
    expect(outline.nameAt(5)).toBe('System prompt');
    expect(outline.nameAt(12)).toBe('Chat template');
    expect(outline.nameAt(40)).toBe('guide.pdf, page 2');
    expect(outline.nameAt(57)).toBe('Question 1');
    expect(outline.nameAt(65)).toBe('Answer 1');
  });

  test('leads to the message of a position', () => {
    expect(outline.messageAt(40, 70)).toBe(0);
    expect(outline.messageAt(65, 70)).toBe(1);
    expect(outline.messageAt(12, 70)).toBeNull();
    expect(outline.messageAt(70, 70)).toBeNull();
  });

  test('marks pages and turns', () => {
    expect(outline.marks().map((m) => `${m.at} ${m.label}`)).toEqual(['55 Q1', '15 p1', '35 p2']);
  });

  test('adds up tokens and kept share by source', () => {
    const kept = new Uint8Array(70).fill(255);
    kept.fill(0, 35, 55);
    const sources = outline.sources(kept, 70);
    expect(sources.map((s) => [s.name, s.tokens, s.kept])).toEqual([
      ['System prompt', 10, 1],
      ['Chat template', 5, 1],
      ['guide.pdf', 40, 0.5],
      ['Question 1', 5, 1],
      ['Answer 1', 10, 1],
    ]);
    expect(leftOut(sources)).toBe('Mostly evicted now: guide.pdf, page 2.');
  });

  test('says nothing where nothing is missing', () => {
    expect(leftOut(outline.sources(new Uint8Array(70).fill(255), 70))).toBeUndefined();
  });
});
