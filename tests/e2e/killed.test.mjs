import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { CisternWindow } from './lib/window.mjs';

// cherry-studio#3820
story('a program that is killed while it writes', (step, on) => {
  let shown;

  step('has stored what was on the screen a moment before', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 400 });
    await on.window.ask('Write a long story about a lighthouse keeper and the sea.');
    await on.window.answering(12);
    shown = (await on.window.answer()).text;
    // What may be lost is 100 ms of it.
    await sleep(120);
    const desktop = on.desktop.processes().find(({ command }) => /-desktop$/.test(command[0]));
    process.kill(desktop.pid, 'SIGKILL');
    await on.window.shut();
    const [{ text, finish }] = on.desktop.query(
      `SELECT text, finish FROM messages WHERE role = 'assistant'`,
    );
    assert.equal(finish, null);
    assert.ok(text.replace(/\s+/g, ' ').trim().startsWith(shown.replace(/\s+/g, ' ')), text);
  });

  step('shows it as cut off after a restart, and writes the rest', async () => {
    on.window = await CisternWindow.open(on.desktop);
    await until('the list of chats is there', () => on.window.has('chat-item'));
    await on.window.session.click('[data-testid="chat-item"] .open');
    await until('the answer is shown as cut off', async () =>
      /Cut off/.test(await on.window.text('assistant-message')),
    );
    await on.window.settings({ max_tokens: 16 });
    await on.window.click('continue');
    const rest = await until('the answer is longer', async () => {
      const answer = await on.window.answer();
      return !answer.writing && answer.generated > 0 && answer;
    });
    assert.ok(rest.text.startsWith(shown.slice(0, 40)) && rest.text.length > shown.length);
  });
});
