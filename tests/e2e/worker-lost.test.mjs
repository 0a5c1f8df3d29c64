import assert from 'node:assert/strict';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';

story('an engine that is killed while it writes', (step, on) => {
  let lost;

  step('takes neither the window nor the text with it, and is started again', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 600 });
    await on.window.ask('Write a long story about a lighthouse keeper and the sea.');
    const before = await on.window.answering(8);
    lost = on.desktop.worker();
    process.kill(lost, 'SIGKILL');

    const answer = await on.window.answered();
    assert.match(answer.failure, /^The engine stopped .*\.$/);
    assert.ok(answer.text.startsWith(before.text), 'what was written is still there');
    await until('another engine is at work', () => {
      const now = on.desktop.worker();
      return now !== undefined && now !== lost;
    });
    await on.window.modelReady();
    await until('the notice is gone', async () => !(await on.window.has('banner')));
  });

  step('answers the next question in the same chat', async () => {
    await on.window.settings({ max_tokens: 8 });
    await on.window.ask('Who is the story about?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.text.length > 0);
    assert.equal((await on.window.texts('chat-item')).length, 1);
  });

  step('leaves no process behind when the window is closed', async () => {
    await on.window.shut();
    assert.deepEqual(on.desktop.processes(), []);
  });
});
