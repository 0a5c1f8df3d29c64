// @vitest-environment jsdom
import { describe, expect, test, vi } from 'vitest';
import { enrich } from '../../src/lib/text/enrich';
import { Blocks } from '../../src/lib/text/markdown';

const html = (markdown: string) =>
  new Blocks()
    .of(markdown)
    .map((block) => block.html)
    .join('');

describe('answers are Markdown that can do no harm', () => {
  test('scripts, handlers, frames and forms are gone', () => {
    const out = html(
      '<script>alert(1)</script><b onclick="x()">b</b>\n\n<iframe src="https://a.b"></iframe>\n\n<form action="https://a.b"><input name="q"></form>',
    );
    expect(out).not.toMatch(/script|onclick|iframe|<form|<input/);
  });

  test('no picture is ever fetched: it becomes a link', () => {
    const out = html(
      '![chart](https://tracker.example/p.png)\n\n<img src="https://tracker.example/q.png">',
    );
    expect(out).not.toContain('<img');
    expect(out).toContain('<a href="https://tracker.example/p.png">chart</a>');
  });

  test('only http and https lead out', () => {
    const out = html('[a](javascript:alert(1)) [b](file:///etc/passwd) [c](https://example.org)');
    expect(out).not.toMatch(/javascript:|file:/);
    expect(out).toContain('href="https://example.org"');
  });

  test('code keeps its text and gets a copy button', () => {
    const out = html('```html\n<b>&amp;</b>\n```');
    expect(out).toContain('&lt;b&gt;&amp;amp;&lt;/b&gt;');
    expect(out).toMatch(/<button[^>]*data-copy/);
    expect(out).toContain('<span>html</span>');
  });

  test('tables keep their alignment, task lists their boxes', () => {
    expect(html('| a | b |\n| --- | ---: |\n| 1 | 2 |')).toContain('<td align="right">2</td>');
    expect(html('- [x] done')).toMatch(/<input[^>]*type="checkbox"/);
  });

  test('links by reference work across blocks', () => {
    expect(html('See [the page][1].\n\n[1]: https://example.org/x')).toContain(
      'href="https://example.org/x"',
    );
  });
});

test('a long answer is the same whether it is read in pieces or at once', () => {
  const parts = [
    '## A heading',
    'A paragraph with **bold**, `code` and $x^2$ in it, on\ntwo lines.',
    '1. one\n\n2. two\n\n   more of two\n\n3. three',
    '- a\n  - b\n    - c\n- d',
    '| a | b |\n| --- | ---: |\n| 1 | 2 |',
    '```rust\nfn main() {\n\n}\n```',
    '> quoted\n>\n> twice',
    '    indented\n\n    code',
    '$$\ny = 2\n$$',
    'Title\n---',
    '---',
  ];
  for (let seed = 1; seed <= 12; seed += 1) {
    const pick = (i: number) => parts[(i * i * 7 + i * seed) % parts.length] ?? '';
    const list = Array.from({ length: 150 * seed }, (_, i) => `${i + 1}. item ${i}`).join('\n\n');
    const fence = '```\n' + 'a line of code\n'.repeat(150 * seed) + '```';
    const text = [...Array.from({ length: 200 }, (_, i) => pick(i)), list, 'x', fence].join('\n\n');
    // With a reference in it, all of it is read at once.
    const whole = html(`${text}\n\n[1]: https://example.org`);
    expect(html(text), `seed ${seed}`).toBe(whole);
  }
});

test('while an answer grows, finished blocks are not rendered again', () => {
  const blocks = new Blocks();
  const first = blocks.of('One.\n\nTwo')[0];
  const [again, last] = blocks.of('One.\n\nTwo and');
  expect(again).toBe(first);
  expect(last?.html).toBe('<p>Two and</p>\n');
});

test.each([
  ['a list that goes on after a gap', '- one\n\n- two\n\n  more of two\n\ntext\n'],
  ['a heading that shows only by its next line', 'Title\n=====\n\ntext'],
  [
    'code, a table, a formula',
    '```js\nlet a;\n\nlet b;\n```\n\n| a |\n|---|\n| 1 |\n\n$$\nx\n$$\n\nend',
  ],
  ['a reference that is defined last', 'See [it][1].\n\nMore.\n\n[1]: https://example.org/x'],
  ['another chat’s text in its place', '# One'],
])('%s ends up the same, letter by letter or at once', (_, text) => {
  const blocks = new Blocks();
  for (let end = 1; end <= text.length; end += 1) blocks.of(text.slice(0, end));
  expect(blocks.of(text).map((block) => block.html)).toEqual(
    new Blocks().of(text).map((block) => block.html),
  );
});

describe('formulas', () => {
  const formulas = (markdown: string) =>
    [...html(markdown).matchAll(/data-math="(\w+)" data-tex="([^"]*)"/g)].map(([, kind, tex]) => [
      kind,
      tex,
    ]);

  test('are found in all four ways of writing them', () => {
    expect(formulas('Here \\(a_1\\) and $b^2$.')).toEqual([
      ['inline', 'a_1'],
      ['inline', 'b^2'],
    ]);
    expect(formulas('So:\n\n$$\n\\frac{a}{b}\n$$\n\nand\n\n\\[\nc < d\n\\]')).toEqual([
      ['display', '\\frac{a}{b}'],
      ['display', 'c &lt; d'],
    ]);
  });

  test('are not seen in prices, code and shell variables', () => {
    expect(formulas('It costs $5 and $6, or `$a$`.\n\n```sh\necho $A $B\n```')).toEqual([]);
  });
});

test('an open code fence is already code', () => {
  expect(html('```js\nconst a = 1;')).toContain('<code data-lang="js">const a = 1;');
});

test('an answer cannot make up attributes that the window acts on', () => {
  expect(html('<span data-testid="send" aria-label="Send" style="x" id="a">x</span>')).toBe(
    '<p><span>x</span></p>\n',
  );
});

describe('what takes a library', () => {
  const set = (markdown: string) => {
    const root = document.createElement('div');
    root.innerHTML = html(markdown);
    document.body.append(root);
    enrich(root);
    return root;
  };

  test('code is coloured, by any name of its language, and keeps its text', async () => {
    const root = set('```py\ndef f(a):\n    return "<b>"\n```');
    await vi.waitFor(() => expect(root.querySelector('.hljs-keyword')?.textContent).toBe('def'));
    expect(root.querySelector('code')?.textContent).toBe('def f(a):\n    return "<b>"\n');
    expect(root.querySelector('b')).toBeNull();
  });

  test('formulas are set, and stay as they are where they cannot be read', async () => {
    const root = set('$\\frac{1}{2}$ and $\\nonsense{$ and $\\href{javascript:alert(1)}{x}$');
    await vi.waitFor(() => expect(root.querySelector('.katex mfrac')).toBeTruthy());
    expect(root.textContent).toContain('$\\nonsense{$');
    expect(root.querySelector('a')).toBeNull();
  });
});
