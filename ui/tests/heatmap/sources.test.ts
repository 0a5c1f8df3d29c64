import { describe, expect, test } from 'vitest';
import { leftOut, Outline, readTokens } from '../../src/lib/heatmap/sources';
import type { Held } from '../../src/lib/heatmap/states';
import type { Span } from '../../src/lib/ipc/types';
import { message } from '../preview/api';

const messages = [
  message(1, 'user', 'What?', {
    documents: [{ id: 1, name: 'guide.pdf', copied: true, pages: 2, tokens: 40 }],
  }),
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

  const held = (kept: Uint8Array, rest: Partial<Held> = {}): Held => ({
    kept,
    seen: kept.length,
    pinned: [],
    forgotten: [],
    ...rest,
  });

  test('adds up tokens and kept share by source', () => {
    const kept = new Uint8Array(70).fill(255);
    kept.fill(0, 35, 55);
    const sources = outline.sources(held(kept), 70);
    expect(sources.map((s) => [s.name, s.tokens, s.kept, s.store])).toEqual([
      ['System prompt', 10, 1, 0],
      ['Chat template', 5, 1, 0],
      ['guide.pdf', 40, 0.5, 20],
      ['Question 1', 5, 1, 0],
      ['Answer 1', 10, 1, 0],
    ]);
    expect(leftOut(sources)).toBe('Mostly evicted now: guide.pdf, page 2.');
  });

  test('tells the store from what is forgotten, and says both', () => {
    const kept = new Uint8Array(70).fill(255).fill(0, 15, 55);
    const sources = outline.sources(held(kept, { forgotten: [[15, 25]] }), 70);
    const guide = sources.find((s) => s.name === 'guide.pdf');
    expect(guide).toMatchObject({ kept: 0, store: 30, forgotten: 10 });
    expect(guide?.pages.map((p) => [p.store, p.forgotten])).toEqual([
      [10, 10],
      [20, 0],
    ]);
    expect(leftOut(sources)).toBe(
      'Mostly evicted now: guide.pdf, page 2. Forgotten, at least in part: guide.pdf, page 1.',
    );
  });

  test('gives the ranges to pin, and which are pinned anyway', () => {
    const sources = outline.sources(held(new Uint8Array(70).fill(255)), 70);
    expect(sources.map((s) => [s.own, s.ranges])).toEqual([
      [true, [[0, 10]]],
      [true, [[10, 15]]],
      [false, [[15, 55]]],
      [false, [[55, 60]]],
      [false, [[60, 70]]],
    ]);
    expect(sources[2]?.pages.map((p) => p.ranges)).toEqual([[[15, 35]], [[35, 55]]]);
  });

  test('what is not read yet is neither evicted nor there to be pinned', () => {
    const sources = outline.sources(held(new Uint8Array(45).fill(255)), 70);
    expect(sources.map((s) => [s.name, readTokens(s), s.kept])).toEqual([
      ['System prompt', 10, 1],
      ['Chat template', 5, 1],
      ['guide.pdf', 30, 1],
      ['Question 1', 0, 0],
      ['Answer 1', 0, 0],
    ]);
    expect(leftOut(sources)).toBeUndefined();
  });

  test('says nothing where nothing is missing', () => {
    expect(leftOut(outline.sources(held(new Uint8Array(70).fill(255)), 70))).toBeUndefined();
  });
});
