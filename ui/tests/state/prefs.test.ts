import { afterEach, expect, test } from 'vitest';
import { chooseLanguage } from '../../src/lib/i18n/language.svelte';
import { DEFAULT_SAMPLING, Prefs } from '../../src/lib/state/prefs.svelte';

afterEach(() => chooseLanguage('system'));

function storage(text: string | null = null) {
  let kept = text;
  return {
    getItem: () => kept,
    setItem: (_: string, value: string) => (kept = value),
  };
}

test('everything that is set is there again', () => {
  const place = storage();
  const prefs = new Prefs(place);
  Object.assign(prefs, { theme: 'dark', language: 'zh', fontSize: 'large' });
  prefs.cache.store_limit = 0;
  prefs.sampling.temperature = 0;
  prefs.save();
  const again = new Prefs(place);
  expect(again.stored).toEqual(prefs.stored);
  expect(again.cacheOptions.store_limit).toBe(0);
});

test('what is damaged, of another kind or from another version is the default', () => {
  const defaults = new Prefs(storage()).stored;
  for (const text of [
    '{',
    'null',
    '7',
    '{"theme":"pink","language":"xx","fontSize":9,"systemPrompt":7,"preset":"best","cache":{"store_limit":"x"},"sampling":{"top_p":"1"}}',
  ]) {
    expect(new Prefs(storage(text)).stored).toEqual(defaults);
  }
});

test('a reset leaves the panels as they are, and can be taken back', () => {
  const prefs = new Prefs(storage());
  prefs.sidebar = false;
  prefs.fontSize = 'huge';
  prefs.sampling.top_k = 1;
  const before = prefs.stored;
  prefs.reset();
  expect(prefs.stored).toMatchObject({
    sidebar: false,
    fontSize: 'normal',
    sampling: DEFAULT_SAMPLING,
  });
  prefs.restore(before);
  expect(prefs.stored).toEqual(before);
});
