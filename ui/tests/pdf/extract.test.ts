import './polyfills';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { extractPdf, type Engine, type ExtractOptions } from '../../src/lib/pdf/extract';

const ui = fileURLToPath(new URL('../..', import.meta.url));
const engine: Engine = {
  pdfjs: await import('pdfjs-dist/legacy/build/pdf.mjs'),
  assets: `${path.join(ui, 'node_modules/pdfjs-dist')}/`,
};

const load = (name: string) =>
  new Uint8Array(readFileSync(path.join(ui, '../tests/pdfs', `${name}.pdf`)));
const read = (name: string, options?: ExtractOptions) => extractPdf(engine, load(name), options);
const text = async (name: string, options?: ExtractOptions) =>
  (await read(name, options)).map((page) => page.text).join('\n\n');

describe('the hard PDFs', () => {
  test('two columns are read one after the other, broken words joined', async () => {
    const pages = await read('twocol-lorem');
    expect(pages).toHaveLength(3);
    const first = pages[0]?.text ?? '';
    expect(first).toContain('two columns filled');
    expect(first).toMatch(/consectetuer adipiscing\s/);
    expect(pages.map((p) => p.text).join('\n')).not.toMatch(/\p{Ll}-\n\p{Ll}/u);
    // The abstract goes on down the left column before anything from the right one.
    const flat = first.replace(/\s+/g, ' ');
    expect(flat).toContain('Curabitur dictum gravida mauris.');
  });

  test('Japanese through the predefined CMaps', async () => {
    const out = await text('cjk-japanese-90ms-rksj');
    expect(out).toContain('Hello ASCII');
    expect(out).toContain('日本語テスト');
  });

  test('vertical Japanese is read from right to left', async () => {
    const out = await text('cjk-vertical-no-tounicode');
    const lines = ['わたくしといふ現象は', '假定された有機交流電燈の', 'ひとつの青い照明です'];
    const at = lines.map((line) => out.indexOf(line));
    expect(at.every((i) => i >= 0)).toBe(true);
    expect([...at].sort((a, b) => a - b)).toEqual(at);
  });

  test('a rotated table keeps each row on one line', async () => {
    const out = await text('rotated90-table');
    expect(out).toContain('Alabama 18,870 23,022 22,650 859');
    expect(out).toContain('Wyoming');
  });

  test('an empty password opens without asking', async () => {
    const asked: boolean[] = [];
    const out = await text('encrypted-empty-password-aes256r6', {
      onPassword: (wrong) => {
        asked.push(wrong);
        return Promise.resolve(null);
      },
    });
    expect(out).toContain('pdf encryption test');
    expect(asked).toEqual([]);
  });

  test('a wrong password is said to be wrong, the right one opens', async () => {
    const asked: boolean[] = [];
    const answers = ['nope', 'foo'];
    const out = await text('encrypted-user-foo-owner-bar', {
      onPassword: (wrong) => {
        asked.push(wrong);
        return Promise.resolve(answers.shift() ?? null);
      },
    });
    expect(asked).toEqual([false, true]);
    expect(out).toContain('pdf encryption test');
  });

  test('giving no password is not an error of the file', async () => {
    await expect(text('encrypted-user-foo-owner-bar')).rejects.toMatchObject({ code: 'password' });
  });

  test('a scan is named as an image without text', async () => {
    await expect(text('scan-image-only')).rejects.toMatchObject({
      code: 'no_text',
      message: expect.stringContaining('image without text') as string,
    });
  });

  test('a broken cross-reference table is repaired', async () => {
    expect(await text('broken-xref')).toContain('Issue 9105');
  });

  test('what was typed into a form stands beside its label', async () => {
    const out = await text('form-field-values');
    expect(out).toContain('Single line, unlimited length Lorem ipsum dolor sit amet');
    expect(out).toContain('Single line, length 10 Lorem ipsu');
    expect(out).toContain('abcdefghijklmnopqrstuvwxyz');
  });

  test('ligatures become letters', async () => {
    expect(await text('ligatures')).toBe('abcdeffffiflffifflststghijklmno');
  });

  test('Arabic with Latin names comes in logical order', async () => {
    const out = await text('rtl-arabic-latin');
    expect(out).toMatch(/تحسين.*البرمجة بلغة R و Python/);
  });
});

test('reading can be cancelled between pages', async () => {
  const abort = new AbortController();
  const reading = read('twocol-lorem', {
    signal: abort.signal,
    onProgress: (done) => {
      if (done === 1) abort.abort();
    },
  });
  await expect(reading).rejects.toMatchObject({ code: 'cancelled' });
});

test('a file that is no PDF has a sentence of its own', async () => {
  const reading = extractPdf(engine, new TextEncoder().encode('hello, not a pdf'));
  await expect(reading).rejects.toMatchObject({ code: 'broken' });
});
