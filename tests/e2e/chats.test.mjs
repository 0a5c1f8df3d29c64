import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { Key } from './lib/webdriver.mjs';
import { CisternWindow } from './lib/window.mjs';

story('the list of chats: search, pin, delete, export, import', (step, on) => {
  const titles = () => on.window.texts('chat-item');
  const item = (title) => `[data-testid="chat-item"]:has([title="${title}"])`;
  const choose = async (title, what) => {
    await on.window.session.hoverOver(item(title));
    await on.window.session.click(`${item(title)} [data-testid="chat-menu"]`);
    await until('the menu is open', () => on.window.has(`chat-${what}`));
    await on.window.click(`chat-${what}`);
  };

  step('finds a word in an answer or a question, and opens the chat there', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 4 });
    for (const question of ['Where is the lighthouse?', 'What is 内存预算 for?', 'Name a colour']) {
      await on.window.chord(Key.control, 'n');
      await on.window.ask(question);
      await on.window.answered();
    }
    assert.equal((await titles()).length, 3);

    const search = async (words) => {
      await on.window.chord(Key.control, 'k');
      await on.window.press(...words);
      return until(`results for ${words}`, async () => {
        const found = await on.window.texts('search-result');
        return found.length > 0 && found;
      });
    };
    const [found, ...others] = await search('LIGHTHOUSE');
    assert.deepEqual(others, []);
    assert.match(found, /Where is the lighthouse\?/);
    await on.window.session.click('[data-testid="search-hit"]');
    await until('the chat is open', async () =>
      (await on.window.texts('user-message'))[0]?.includes('Where is the lighthouse?'),
    );
    await on.window.chord(Key.control, 'k');
    await on.window.press(Key.escape);
    await until('the list is back', async () => (await titles()).length === 3);
  });

  step('holds a pinned chat at the top, also after a restart', async () => {
    await choose('Where is the lighthouse?', 'pin');
    await until('it is at the top', async () => /lighthouse/.test((await titles())[0]));
    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop);
    await until('it is still there', async () => /lighthouse/.test((await titles())[0]));
  });

  step('takes a deletion back, and stands by it after a restart', async () => {
    const colour = item('Name a colour');
    const remove = async () => {
      await on.window.session.hoverOver(colour);
      await on.window.session.click(`${colour} [data-testid="delete-chat"]`);
      await until('it is gone', async () => (await titles()).length === 2);
    };
    await remove();
    await on.window.click('toast-action');
    await until('it is back', async () => (await titles()).length === 3);
    await remove();
    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop);
    await until('the list is there', async () => (await titles()).length > 0);
    assert.equal((await titles()).length, 2);
    const whole = on.desktop.query(
      `SELECT (SELECT count(*) FROM messages m WHERE m.chat_id = c.id) AS messages
       FROM chats c WHERE deleted_ms IS NOT NULL`,
    );
    assert.deepEqual(whole, [{ messages: 2 }], 'until it goes for good it is whole');
  });

  step('exports a chat through the system’s dialog and imports it again', async () => {
    const title = 'Where is the lighthouse?';
    const exported = async (format, extension) => {
      const file = path.join(on.desktop.data, `exported.${extension}`);
      await choose(title, format);
      await on.desktop.answerDialog('Export the chat', file);
      await until('the file is there', () => fs.existsSync(file));
      return fs.readFileSync(file, 'utf8');
    };
    assert.match(await exported('markdown', 'md'), /^# Where is the lighthouse\?\n\n## You\n/);
    const chat = JSON.parse(await exported('json', 'json'));
    assert.equal(chat.title, title);

    chat.title = 'From elsewhere';
    const file = path.join(on.desktop.data, 'elsewhere.json');
    fs.writeFileSync(file, JSON.stringify(chat));
    await on.window.drop(file);
    await until('it is in the list and open', async () => {
      const open = (await on.window.texts('user-message'))[0] ?? '';
      return (await titles()).includes('From elsewhere') && open.includes('lighthouse');
    });
    await on.window.ask('Are you still there?');
    assert.equal((await on.window.answered()).failure, null);

    fs.writeFileSync(file, '{"format":"diary"}');
    await on.window.drop(file);
    // Beside what was said before, and is not gone yet.
    await until('it is refused in a sentence', async () =>
      /not a chat that Cistern can import/.test(await on.window.text('toasts')),
    );
  });
});
