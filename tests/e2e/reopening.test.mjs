import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './lib/desktop.mjs';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { CisternWindow } from './lib/window.mjs';

const NOVEL = path.join(ROOT, 'engine/tests/texts/pride-and-prejudice-opening.txt');

// koboldcpp#445, lms#498
story('reopening a chat about a document', (step, on) => {
  const snapshots = () =>
    fs
      .readdirSync(path.join(on.desktop.data, 'snapshots'))
      .map((name) => path.join(on.desktop.data, 'snapshots', name));
  const reopen = async () => {
    await on.window.quit();
    on.window = await CisternWindow.open(on.desktop);
  };
  const openFirst = async () => {
    await until('the list of chats is there', () => on.window.has('chat-item'));
    await on.window.session.click('[data-testid="chat-item"] .open');
    await until('the chat is open', () => on.window.has('assistant-message'));
  };
  let read;

  step('writes what the model holds when the window closes', async () => {
    const notes = path.join(on.desktop.data, 'novel.txt');
    fs.writeFileSync(notes, fs.readFileSync(NOVEL, 'utf8').slice(0, 3000));
    await on.window.attach(notes);
    await on.window.settings({ temperature: 0, max_tokens: 12 });
    await on.window.ask('Who is Mr. Bingley?');
    read = (await on.window.answered()).prefilled;
    assert.ok(read > 600, `${read} tokens were read`);
    await reopen();
    assert.deepEqual(
      snapshots().map((file) => path.extname(file)),
      ['.snapshot'],
    );
  });

  step('shows it and answers after a restart without reading the document again', async () => {
    await openFirst();
    const held = await until('the heatmap has the document again', async () => {
      const memory = await on.window.memory().catch(() => null);
      return memory?.kept > 0 && memory;
    });
    assert.ok(held.kept > 300, `${held.kept} entries are held`);
    await on.window.ask('And who is Mrs. Bennet?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.prefilled < 40, `${answer.prefilled} tokens were read`);
  });

  step('has it again after the model was ejected and opened again', async () => {
    await on.window.click('model-menu');
    await until('the models are listed', () => on.window.has('eject'));
    await on.window.click('eject');
    await until('no model is open', async () => !(await on.window.has('model-name')));
    await on.window.session.click('[data-testid="load-model"]');
    await on.window.modelReady();
    await on.window.ask('Where do they live?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.prefilled < 40, `${answer.prefilled} tokens were read`);
  });

  step('has it again after the system ended the program', async () => {
    await on.desktop.terminate();
    on.window = await CisternWindow.open(on.desktop);
    await openFirst();
    await on.window.ask('How many daughters are there?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.prefilled < 40, `${answer.prefilled} tokens were read`);
  });

  step('reads the document again where the file is damaged', async () => {
    await on.window.quit();
    const [file] = snapshots();
    const bytes = fs.readFileSync(file);
    bytes[bytes.length - 100] ^= 1;
    fs.writeFileSync(file, bytes);
    on.window = await CisternWindow.open(on.desktop);
    await openFirst();
    await on.window.ask('What is the name of the park?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.text.length > 0);
    assert.ok(answer.prefilled > read, `${answer.prefilled} tokens were read`);
    assert.equal(await on.window.text('toasts'), '', 'nobody is bothered');
  });
});
