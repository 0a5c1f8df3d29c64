import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './lib/desktop.mjs';
import { story } from './lib/story.mjs';
import { Key } from './lib/webdriver.mjs';

const AXE = fs.readFileSync(path.join(ROOT, 'ui/node_modules/axe-core/axe.min.js'), 'utf8');

/** What axe finds in the page as it stands, one line for each place. */
async function problems({ window: { session } }) {
  if (!(await session.run(() => 'axe' in globalThis))) {
    await session.evaluate(AXE);
    // A colour that is changing over is none of the two.
    await session.run(() => {
      const style = document.createElement('style');
      style.textContent = '* { transition: none !important; }';
      document.head.append(style);
    });
  }
  return session.runToEnd(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ['violations'] });
    return violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html, any }) => `${id}: ${html.slice(0, 160)} ${any[0]?.message ?? ''}`),
    );
  });
}

story('everyone can use it', (step, on) => {
  const clean = async () => assert.deepEqual(await problems(on), []);
  const inBothThemes = async () => {
    for (const theme of ['light', 'dark']) {
      await on.window.theme(theme);
      await clean();
    }
  };
  const focused = () =>
    on.window.session.run(() => {
      const { activeElement: at } = document;
      return at?.dataset.testid ?? at?.getAttribute('aria-label') ?? at?.tagName;
    });

  step('axe finds nothing in an empty window', inBothThemes);

  step('nor in a chat', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 24 });
    await on.window.ask('Write a list of three colours.');
    await on.window.answered();
    await inBothThemes();
  });

  step('nor among the models', async () => {
    await on.window.click('model-menu');
    await clean();
    await on.window.press(Key.escape);
    assert.equal(await focused(), 'model-menu');
  });

  step('a dialog keeps the focus and gives it back', async () => {
    for (const [key, id] of [
      [',', 'settings'],
      ['/', 'shortcuts'],
    ]) {
      await on.window.session.run(() => document.querySelector('[data-testid="composer"]').focus());
      await on.window.session.chord(Key.control, key);
      await clean();
      for (let i = 0; i < 40; i += 1) await on.window.press(Key.tab);
      assert.ok(
        await on.window.session.run((css) => {
          const { activeElement: at } = document;
          return at === document.body || document.querySelector(css).contains(at);
        }, `[data-testid="${id}"]`),
        'the focus stays within',
      );
      await on.window.press(Key.escape);
      assert.equal(await focused(), 'composer');
    }
  });

  step('every control is reached with Tab', async () => {
    const expected = await on.window.session.run(() => {
      document.activeElement?.blur();
      const all = document.querySelectorAll('button, input, textarea, a[href], summary, select');
      return [...all].filter((e) => !e.disabled && e.checkVisibility() && e.tabIndex >= 0).length;
    });
    await on.window.session.run(() => {
      globalThis.reached = new Set();
      addEventListener('focusin', (event) => globalThis.reached.add(event.target));
    });
    for (let i = 0; i < expected + 10; i += 1) await on.window.press(Key.tab);
    const missed = await on.window.session.run(() => {
      const all = document.querySelectorAll('button, input, textarea, a[href], summary, select');
      return (
        [...all]
          .filter((e) => !e.disabled && e.checkVisibility() && e.tabIndex >= 0)
          // Of a group of radio buttons one is in the order, the arrows reach the others.
          .filter((e) => e.type !== 'radio' && !globalThis.reached.has(e))
          .map((e) => e.getAttribute('aria-label') ?? e.textContent.trim())
      );
    });
    assert.deepEqual(missed, []);
  });

  step('axe finds nothing in Chinese, and Chinese has its signs', async () => {
    await on.window.session.chord(Key.control, ',');
    await on.window.choose('language-zh');
    await clean();
    const widths = await on.window.session.run(() => {
      const ctx = document.createElement('canvas').getContext('2d');
      ctx.font = getComputedStyle(document.body).font;
      // A sign that no font has is drawn as the same box for all.
      return ['设', '一', '\u{10FFFD}'].map((sign) => {
        ctx.clearRect(0, 0, 40, 40);
        ctx.fillText(sign, 0, 30);
        return ctx.getImageData(0, 0, 40, 40).data.filter((byte) => byte > 0).length;
      });
    });
    assert.equal(new Set(widths).size, 3);
    await on.window.choose('language-en');
    await on.window.press(Key.escape);
  });
});
