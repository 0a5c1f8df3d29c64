// @vitest-environment jsdom
import { describe, expect, test } from 'vitest';
import { renderBlocks } from '../../src/lib/text/markdown';

const html = (markdown: string) =>
  renderBlocks(markdown)
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

test('while an answer grows, finished blocks are not rendered again', () => {
  const cache = new Map<string, string>();
  const first = renderBlocks('One.\n\nTwo', cache)[0];
  const size = cache.size;
  const again = renderBlocks('One.\n\nTwo and', cache)[0];
  expect(again).toEqual(first);
  expect(cache.size).toBe(size + 1);
});

test('an open code fence is already code', () => {
  expect(html('```js\nconst a = 1;')).toContain('<pre><code>const a = 1;');
});
