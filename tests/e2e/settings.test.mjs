import assert from 'node:assert/strict';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { Key } from './lib/webdriver.mjs';
import { CisternWindow } from './lib/window.mjs';

story('settings', (step, on) => {
  const page = () =>
    on.window.session.run(() => ({
      lang: document.documentElement.lang,
      type: parseFloat(getComputedStyle(document.documentElement).fontSize),
      placeholder: document.querySelector('[data-testid="composer"]').placeholder,
    }));

  step('say where the data lies', async () => {
    await on.window.session.chord(Key.control, ',');
    await until(
      'the data folder is named',
      async () => (await on.window.text('data-folder')) === on.desktop.data,
    );
  });

  step('change language and type size at once', async () => {
    const before = await page();
    await on.window.choose('language-zh');
    await on.window.choose('font-size-large');
    const after = await page();
    assert.equal(after.lang, 'zh-CN');
    assert.match(after.placeholder, /^输入问题/);
    assert.ok(after.type > before.type);
    await on.window.press(Key.escape);
  });

  step('limit the store of a chat, and begin it with the system prompt', async () => {
    await on.window.session.chord(Key.control, ',');
    await on.window.session.fill('#store-limit', '0');
    await on.window.session.type('#system-prompt', 'Answer in one word.');
    await on.window.press(Key.escape);
    await on.window.settings({ temperature: 0, max_tokens: 8 });
    await on.window.ask('Hello?');
    await on.window.answered();
    const [first] = on.desktop.query('SELECT role, text FROM messages ORDER BY id');
    assert.deepEqual(first, { role: 'system', text: 'Answer in one word.' });
    assert.match(await on.window.text('store-bytes'), /不存储/);
    await on.window.session.run(
      () => (document.querySelector('[data-testid="system-message"]').open = true),
    );
    assert.match(await on.window.text('system-message'), /Answer in one word\./);
  });

  step('are there after a restart, and go back to their defaults with a way back', async () => {
    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop);
    assert.equal((await page()).lang, 'zh-CN');
    await on.window.session.chord(Key.control, ',');
    await on.window.click('reset-settings');
    await until('the window speaks English', async () => (await page()).lang === 'en-US');
    await on.window.press(Key.escape);
    await on.window.click('toast-action');
    await until('the settings are back', async () => (await page()).lang === 'zh-CN');
  });
});
