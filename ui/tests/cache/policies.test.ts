import { describe, expect, test } from 'vitest';
import { OTHERS, POLICIES, RECOMMENDED, recentStart } from '../../src/lib/cache/policies';
import type { PolicyName } from '../../src/lib/ipc/types';
import { CACHE, OPTIONS } from '../preview/samples';
import { t } from '../../src/lib/i18n';

/** Tokens that are kept only because they are new, at 1,000 tokens seen. */
function recent(policy: PolicyName, asked: Partial<typeof OPTIONS & typeof CACHE> = {}) {
  const state = { ...CACHE, budget: asked.budget ?? CACHE.budget };
  const of = (reading: boolean) =>
    1000 - recentStart({ ...OPTIONS, ...asked, policy }, state, reading);
  return [of(true), of(false)];
}

describe('the recent window, while reading and while writing', () => {
  test('follows the policy', () => {
    expect(recent('h2o')).toEqual([100, 100]);
    expect(recent('h2o-paper')).toEqual([100, 100]);
    expect(recent('random')).toEqual([100, 100]);
    expect(recent('window')).toEqual([196, 196]);
    expect(recent('tova')).toEqual([16, 16]);
    expect(recent('expected')).toEqual([25, 25]);
    expect(recent('kvzip')).toEqual([25, 25]);
    expect(recent('full')).toEqual([0, 0]);
  });

  test('snapkv votes with its last 32 and then writes like h2o', () => {
    expect(recent('snapkv')).toEqual([32, 100]);
  });

  test('pyramidkv protects everywhere what its smallest layer protects', () => {
    // (200 − 32) / 20 rounds to 8, and 32 more: half of 40.
    expect(recent('pyramidkv')).toEqual([32, 20]);
  });

  test('takes what is asked for where the policy has a choice, and never fewer than 16', () => {
    expect(recent('h2o', { recent: 30 })).toEqual([30, 30]);
    expect(recent('tova', { recent: 40 })).toEqual([40, 40]);
    expect(recent('expected', { recent: 3 })).toEqual([16, 16]);
    expect(recent('snapkv', { recent: 50 })).toEqual([32, 50]);
    expect(recent('window', { recent: 50 })).toEqual([196, 196]);
    expect(recent('kvzip', { budget: 64 })).toEqual([16, 16]);
  });

  test('is empty while everything fits', () => {
    expect(recent('h2o', { budget: 1000 })).toEqual([0, 0]);
  });
});

test('the list offers each policy once, the control not at all, and stays short', () => {
  expect(new Set(POLICIES).size).toBe(POLICIES.length);
  expect(POLICIES).not.toContain('random');
  expect(POLICIES).toHaveLength(9);
  expect(RECOMMENDED).toEqual(['h2o']);
  expect(OTHERS.every((name) => /^[A-Z].*\.$/.test(t.memory.policy.says[name]))).toBe(true);
});
