import assert from 'node:assert/strict';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { Key } from './lib/webdriver.mjs';
import { CisternWindow } from './lib/window.mjs';

const LONG = 'Write a long story about a lighthouse keeper and the sea.';

story('stopping an answer, and coming back to it', (step, on) => {
  const stopped = [];

  step('ends at Esc and keeps what was written', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 600 });
    await on.window.ask(LONG);
    const before = await on.window.answering(8);
    await on.window.press(Key.escape);
    const answer = await on.window.answered();
    assert.ok(answer.stopped);
    assert.ok(answer.text.startsWith(before.text.slice(0, 10)));
    assert.ok(answer.generated < 300, `it went on to ${answer.generated} tokens`);
    stopped.push(answer.text);
  });

  step('ends at the stop button', async () => {
    await on.window.ask('Go on with the story.');
    await on.window.answering(4);
    await on.window.click('stop');
    const answer = await on.window.answered();
    assert.ok(answer.stopped && answer.text.length > 0);
    stopped.push(answer.text);
    assert.equal(await on.window.has('send'), true);
  });

  step('has the chat again after a restart, and goes on with it', async () => {
    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop);

    const [title, ...others] = await until('the list of chats is there', async () => {
      const items = await on.window.texts('chat-item');
      return items.length > 0 && items;
    });
    assert.deepEqual(others, []);
    assert.match(title, /lighthouse/);
    await on.window.session.click('[data-testid="chat-item"] .open');
    await until(
      'the chat is open',
      // A message that has just been put there is not drawn yet.
      async () => (await on.window.texts('assistant-message')).filter(Boolean).length === 2,
    );
    const answers = await on.window.texts('assistant-message');
    for (const [i, text] of stopped.entries()) {
      assert.ok(answers[i].startsWith(text.replace(/\s+/g, ' ')), `answer ${i + 1} is whole`);
    }

    await on.window.settings({ temperature: 0, max_tokens: 8 });
    await on.window.ask('Who is the story about?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.text.length > 0);
    // The worker is a new one: it has read the whole chat, not the last question alone.
    assert.ok(answer.prefilled > 60, `${answer.prefilled} tokens were read`);
  });
});
