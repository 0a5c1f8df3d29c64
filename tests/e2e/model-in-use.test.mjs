import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { STARTER } from './lib/desktop.mjs';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { GUIDE } from './lib/window.mjs';

const MiB = 2 ** 20;

story('a model in use: what it takes, a second start, and a file that changes', (step, on) => {
  const chips = () => on.window.texts('document-chip');
  const copy = (name) => path.join(on.desktop.data, name);

  step('takes what was told before, within a tenth', async (t) => {
    await on.window.settings({ temperature: 0, max_tokens: 24 });
    await on.window.attach(GUIDE);
    await on.window.slide(0.4);
    await on.window.ask('What does the heatmap show?');
    await on.window.answered();
    const { kept, budget } = await on.window.memory();
    assert.ok(kept >= budget, `the budget of ${budget} is full: ${kept}`);
    const told = await on.window.bytes('fit');
    // The store has a limit of its own, and grows with the chat.
    const held = on.desktop.resident(on.desktop.worker()) - (await on.window.bytes('store-bytes'));
    const off = told / held - 1;
    const mib = (bytes) => (bytes / MiB).toFixed(1);
    t.diagnostic(
      `budget ${budget}: told ${mib(told)} MiB, held ${mib(held)} MiB, ${(100 * off).toFixed(1)}%`,
    );
    assert.ok(Math.abs(off) < 0.1, `told ${mib(told)} MiB and held ${mib(held)} MiB`);
  });

  step('a second start brings its file to the window that is there, and ends', async () => {
    const before = await chips();
    await on.desktop.startAgain(GUIDE);
    const after = await until('the file is attached', async () => {
      const now = await chips();
      return now.length > before.length && now;
    });
    assert.match(after.at(-1), /guide\.pdf/);
    const windows = on.desktop.processes().filter(({ command }) => command[0].endsWith('-desktop'));
    assert.equal(windows.length, 1);
  });

  step('a file that is deleted while it is open does not disturb the answer', async () => {
    fs.copyFileSync(STARTER, copy('deleted.gguf'));
    await open(copy('deleted.gguf'));
    fs.rmSync(copy('deleted.gguf'));
    await until('the window says so', async () =>
      /deleted\.gguf of the open model was deleted/.test((await on.window.text('toasts')) ?? ''),
    );
    await on.window.ask('What is a cistern?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.text.length > 0);
  });

  step('a file that is cut short while it is read ends in one sentence that names it', async () => {
    fs.copyFileSync(STARTER, copy('cut.gguf'));
    await open(copy('cut.gguf'));
    await on.window.settings({ max_tokens: 600 });
    await on.window.ask('Write a long story about a lighthouse keeper and the sea.');
    const before = await on.window.answering(4);
    fs.truncateSync(copy('cut.gguf'), 20_000_000);
    const answer = await on.window.answered();
    assert.match(
      answer.failure,
      /^[^\n]*cut\.gguf was cut short or changed while it was open[^\n]*\.$/,
    );
    assert.ok(answer.text.startsWith(before.text), 'what was written is still there');
    const banner = await until('the window says what is wrong with the file', async () => {
      const text = await on.window.text('banner');
      return /not a complete GGUF file/.test(text ?? '') && text;
    });
    assert.match(banner, /cut\.gguf/);
  });

  step('and another model is opened as if nothing had happened', async () => {
    await on.window.click('model-menu');
    await on.window.session.click(
      '[data-testid="model-entry"][data-id="smollm2-135m-instruct"] [data-testid="load-model"]',
    );
    await on.window.modelReady();
    await on.window.settings({ max_tokens: 8 });
    await on.window.ask('Who is the story about?');
    assert.equal((await on.window.answered()).failure, null);
  });

  /** Drops a model's file on the window and waits until the engine has it open. */
  async function open(file) {
    await on.window.drop(file);
    await until('the engine has the file open', () => {
      const maps = fs.readFileSync(`/proc/${on.desktop.worker()}/maps`, 'utf8');
      return maps.includes(file);
    });
    await on.window.modelReady();
  }
});
