import { describe, expect, test } from 'vitest';
import { NUMBERS, restored, shown, typed, type NumberField } from '../../src/lib/cache/options';
import { PRESETS } from '../../src/lib/ipc/types';

const field = (key: string) => NUMBERS.find((f) => f.key === key) as NumberField;

describe('advanced values', () => {
  test('are put into their bounds, and an empty field leaves it to the policy where it may', () => {
    expect(typed(field('sinks'), '7.6')).toBe(8);
    expect(typed(field('sinks'), '')).toBeUndefined();
    expect(typed(field('sinks'), 'a few')).toBeUndefined();
    expect(typed(field('recent'), '')).toBeNull();
    expect(typed(field('recent'), '2')).toBe(16);
    expect(typed(field('recall_share'), '0.35')).toBe(0.35);
    expect(typed(field('recall_share'), '3')).toBe(1);
    expect(typed(field('store_limit'), '512')).toBe(512 * 2 ** 20);
    expect(shown(field('store_limit'), 512 * 2 ** 20)).toBe('512');
    expect(shown(field('recent'), null)).toBe('');
  });

  test('that were stored come back, and what cannot be used is that of the preset', () => {
    const stored = {
      ...PRESETS.code,
      sinks: 12,
      chunk: 'many',
      kv: 'f4',
      policy: 'lru',
      recent_share: null,
      recall: false,
    };
    expect(restored(PRESETS.code, stored, ['h2o'])).toEqual({
      ...PRESETS.code,
      sinks: 12,
      recent_share: null,
      recall: false,
    });
    expect(restored(PRESETS.document, null, [])).toEqual(PRESETS.document);
  });

  test('the presets differ in what they are for', () => {
    expect(PRESETS.conversation.policy).toBe('h2o');
    expect(PRESETS.document.policy).toBe('expected');
    expect(PRESETS.code.recent_share).toBeGreaterThan(0.5);
    expect(Object.values(PRESETS).every((preset) => preset.recall)).toBe(true);
  });
});
