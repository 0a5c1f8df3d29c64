import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';

const SRC = path.resolve(import.meta.dirname, '../src');
const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter((file) =>
  file.endsWith('.svelte'),
);
const sheet = readFileSync(path.join(SRC, 'app.css'), 'utf8');

/** The style sheet of a component, line by line. */
const styles = (file: string) =>
  (/<style>([\s\S]*)<\/style>/.exec(readFileSync(path.join(SRC, file), 'utf8'))?.[1] ?? '').split(
    '\n',
  );

const lines = files.flatMap((file) => styles(file).map((line) => `${file}: ${line.trim()}`));

test('every colour and size of type has its name in app.css', () => {
  const colour = /#[0-9a-f]{3,8}\b|\b(?:rgb|hsl|oklch)a?\(/;
  const type = /font-size: [\d.]+(?:px|rem)/;
  expect(lines.filter((line) => colour.test(line) || type.test(line))).toEqual([]);
});

test('every name that is used is one of app.css, or of the component itself', () => {
  const named = (text: string) => [...text.matchAll(/(--[\w-]+):/g)].map(([, name]) => name);
  const known = new Set(named(sheet));
  const unknown = files.flatMap((file) => {
    const text = readFileSync(path.join(SRC, file), 'utf8');
    const own = new Set(named(text.replaceAll('style:--', '--').replaceAll('=', ':')));
    return [
      ...styles(file)
        .join('\n')
        .matchAll(/var\((--[\w-]+)\)/g),
    ]
      .map(([, name]) => name)
      .filter((name) => !known.has(name) && !own.has(name))
      .map((name) => `${file}: ${name}`);
  });
  expect(unknown).toEqual([]);
});

test('what both themes colour, both name', () => {
  const of = (start: string) => {
    const from = sheet.indexOf(start);
    const block = sheet.slice(from, sheet.indexOf('}', from));
    return [...block.matchAll(/(--[\w-]+): (?:#|0 )/g)].map(([, name]) => name);
  };
  const light = of('color-scheme: light');
  expect(light.length).toBeGreaterThan(30);
  expect(of("data-theme='dark'").sort()).toEqual(
    light.filter((name) => !['--shadow-s', '--scrim', '--paper'].includes(name ?? '')).sort(),
  );
});
