import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { CATALOGUES, t } from '../../src/lib/i18n';
import { CODES, explain } from '../../src/lib/i18n/errors';
import { chooseLanguage } from '../../src/lib/i18n/language.svelte';
import { duration } from '../../src/lib/text/format';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const read = (file: string) => readFileSync(path.join(ROOT, file), 'utf8');

afterEach(() => chooseLanguage('system'));

/** All plain sentences of a catalogue by their path. */
function sentences(value: unknown, at = ''): [string, string][] {
  if (typeof value === 'string') return [[at, value]];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => sentences(inner, `${at}/${key}`));
}

describe('Chinese', () => {
  /** Words that are the same in both languages. */
  const SAME = new Set(['Top-p', 'Top-k', 'Min-p', '']);

  test('has every sentence of its own', () => {
    const english = new Map(sentences(CATALOGUES.en));
    const same = sentences(CATALOGUES.zh).filter(
      ([at, text]) => english.get(at) === text && !SAME.has(text),
    );
    expect(same).toEqual([]);
  });

  test('describes every model of the catalogue', () => {
    const ids = [...read('models/catalog.toml').matchAll(/^id = "(.+)"$/gm)].map(([, id]) => id);
    expect(ids.length).toBeGreaterThan(5);
    expect(Object.keys(CATALOGUES.zh.models.summaries).sort()).toEqual(ids.sort());
  });

  test('has a sentence for every error of shell, engine and downloads', () => {
    const codes = ['src-tauri/src/error.rs', 'engine/src/error.rs', 'hub/src/error.rs'].flatMap(
      (file) => [...read(file).matchAll(/Self::.* => "(\w+)",/g)].map(([, code]) => code),
    );
    expect(codes.length).toBeGreaterThan(40);
    expect(codes.filter((code) => !(CODES as readonly unknown[]).includes(code))).toEqual([]);
  });
});

describe('the chosen language', () => {
  test('speaks at once, numbers and plurals included', () => {
    expect([t.documents.pages(1), t.documents.pages(1200), duration(80)]).toEqual([
      '1 page',
      '1,200 pages',
      '1 min 20 s',
    ]);
    chooseLanguage('zh');
    expect([t.documents.pages(1), t.documents.pages(1200), duration(80)]).toEqual([
      '1 页',
      '1,200 页',
      '1 分 20 秒',
    ]);
  });

  test('an error keeps its original beside the translation', () => {
    const error = { code: 'no_model', message: 'No model is open; choose one first.' };
    expect(explain(error)).toEqual({ sentence: error.message, detail: null });
    chooseLanguage('zh');
    expect(explain(error)).toEqual({
      sentence: '没有打开的模型；请先选择一个。',
      detail: error.message,
    });
    const unheardOf = { code: 'unheard_of', message: 'Something new.' };
    expect(explain(unheardOf)).toEqual({ sentence: 'Something new.', detail: null });
  });
});
