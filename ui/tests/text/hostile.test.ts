// @vitest-environment jsdom
import { describe, expect, test } from 'vitest';
import { Blocks } from '../../src/lib/text/markdown';

/** What a model may be talked into writing. */
const PAYLOADS = [
  '<script>top.hit = 1</script>',
  '<script src="https://evil.example/x.js"></script>',
  '<img src=x onerror="top.hit = 1">',
  '<img src="https://evil.example/pixel.png">',
  '![pixel](https://evil.example/pixel.png)',
  '![pixel][p]\n\n[p]: https://evil.example/pixel.png',
  '![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)',
  '<svg onload="top.hit = 1"><script>top.hit = 1</script><use href="https://evil.example/s.svg#a"/></svg>',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=top.hit=1&gt;">',
  '<iframe src="https://evil.example"></iframe><iframe srcdoc="<script>top.hit=1</script>"></iframe>',
  '<object data="https://evil.example/x.swf"></object><embed src="https://evil.example/x">',
  '<link rel="stylesheet" href="https://evil.example/x.css"><style>@import "https://evil.example/y.css";</style>',
  '<div style="background:url(https://evil.example/z.png)">styled</div>',
  '<meta http-equiv="refresh" content="0;url=https://evil.example">',
  '<base href="https://evil.example/">',
  '<form action="https://evil.example"><input name="q"><button formaction="javascript:top.hit=1">go</button></form>',
  '<video poster="https://evil.example/p.png" src="https://evil.example/v.mp4"></video><audio src="https://evil.example/a.mp3"></audio>',
  '<picture><source srcset="https://evil.example/s.png"><img></picture>',
  '<body background="https://evil.example/b.png" onload="top.hit=1">',
  '<a href="javascript:top.hit=1">a</a> <a href="JaVa&#115;cript:top.hit=1">b</a> <a href=" java\tscript:top.hit=1">c</a>',
  '[a](javascript:top.hit=1) [b](vbscript:x) [c](data:text/html,<script>top.hit=1</script>) [d](file:///etc/passwd)',
  '[a](<javascript:top.hit=1>) <javascript:top.hit=1> <file:///etc/passwd> [r][r]\n\n[r]: javascript:top.hit=1',
  '[a](//evil.example/x) [b](/relative) [c](tauri://localhost/x) [d](ipc://localhost/send)',
  '<a href="https://ok.example" onclick="top.hit=1" ping="https://evil.example" target="_blank">ping</a>',
  '<p id="app" name="cookie" class="x" autofocus tabindex=1 onfocus="top.hit=1">clobber</p>',
  '<details open ontoggle="top.hit=1"><summary>s</summary></details>',
  '<template><script>top.hit=1</script></template><noscript><p title="</noscript><img src=x onerror=top.hit=1>">',
  '```html"><img src=x onerror=top.hit=1>\ncode\n```',
  '| a |\n| --- |\n| <img src=x onerror=top.hit=1> |',
  '<<script>script>top.hit=1<</script>/script>',
  '&lt;script&gt;top.hit=1&lt;/script&gt;',
  'https://evil.example/<script>top.hit=1</script>',
];

const FORBIDDEN =
  'script, iframe, object, embed, link, meta, style, base, form, img, image, video, audio, source, picture, use, template, ' +
  'input:not([type="checkbox"]), [target], [ping], [id="app"], [name="cookie"], [autofocus]';
const LOADS = [
  'src',
  'srcset',
  'poster',
  'background',
  'action',
  'formaction',
  'data',
  'xlink:href',
];

function shown(markdown: string): HTMLElement {
  const page = document.createElement('div');
  // As the page does it; jsdom runs no scripts, but handlers would be there.
  page.innerHTML = new Blocks()
    .of(markdown)
    .map(({ html }) => html)
    .join('');
  return page;
}

function harms(page: HTMLElement): string[] {
  const found = [...page.querySelectorAll(FORBIDDEN)].map((element) => element.outerHTML);
  for (const element of page.querySelectorAll('*')) {
    for (const { name, value } of element.attributes) {
      const leads = name === 'href' && !(element.tagName === 'A' && /^https?:\/\//i.test(value));
      const loads = LOADS.includes(name) || (name === 'style' && /url\s*\(|@import/i.test(value));
      if (name.startsWith('on') || leads || loads) found.push(`${name}="${value}"`);
    }
  }
  return found;
}

describe('an answer can neither run nor fetch anything', () => {
  test.each(PAYLOADS)('%s', (payload) => {
    expect(harms(shown(payload))).toEqual([]);
  });

  test('also where it is broken off anywhere, as it is while it streams in', () => {
    for (const payload of PAYLOADS) {
      for (let end = 1; end < payload.length; end += 9) {
        expect(harms(shown(payload.slice(0, end))), payload.slice(0, end)).toEqual([]);
      }
    }
  });

  test('nor two of them together', () => {
    for (const first of PAYLOADS.slice(0, 5)) {
      for (const second of PAYLOADS) {
        expect(harms(shown(`${first}${second}\n\n${first}`)), `${first} ${second}`).toEqual([]);
      }
    }
  });

  test('what is shown of it is still there to be read', () => {
    expect(shown('![pixel](https://evil.example/pixel.png)').textContent).toContain('pixel');
    expect(shown('before <script>x</script> after').textContent).toMatch(/before .*after/);
    expect(shown('```js\nalert(1)\n```').textContent).toContain('alert(1)');
  });
});
