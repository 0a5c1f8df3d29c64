import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './lib/desktop.mjs';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { CisternWindow } from './lib/window.mjs';

const NOVEL = path.join(ROOT, 'engine/tests/texts/pride-and-prejudice-opening.txt');

story('editing, branching and continuing', (step, on) => {
  let first;

  step('continues an answer that ended at the limit, where it ended', async () => {
    const notes = path.join(on.desktop.data, 'notes.txt');
    fs.writeFileSync(notes, fs.readFileSync(NOVEL, 'utf8').slice(0, 2000));
    await on.window.attach(notes);
    await on.window.settings({ temperature: 0, max_tokens: 12 });
    await on.window.ask('Summarise this chapter at length.');
    const begun = await on.window.answered();
    assert.ok(begun.prefilled > 400, `${begun.prefilled} tokens were read`);
    assert.equal(begun.generated, 12);

    await on.window.click('continue');
    first = await until('the answer is longer and complete', async () => {
      const answer = await on.window.answer();
      return !answer.writing && answer.generated > 12 && answer;
    });
    assert.ok(first.text.startsWith(begun.text));
    assert.equal(first.prefilled, 1, 'nothing was read again');
    assert.equal((await on.window.texts('assistant-message')).length, 1);
  });

  step('writes another answer beside the first without reading the document again', async () => {
    await on.window.click('regenerate');
    await until('a second branch is shown', async () => (await on.window.text('branch')) === '2/2');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.prefilled < 40, `${answer.prefilled} tokens were read`);
  });

  step('asks an edited question in a branch of its own, with its document', async () => {
    await on.window.click('edit');
    await on.window.session.fill('[data-testid="edit-text"]', 'Who is Mr. Bingley?');
    await on.window.click('edit-send');
    await until('the edited question is shown', async () =>
      (await on.window.text('user-message')).includes('Who is Mr. Bingley?'),
    );
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.match(await on.window.text('user-message'), /notes\.txt/);
    assert.ok(answer.prefilled < 40, `${answer.prefilled} tokens were read`);
  });

  step('goes back to the branch before, and has it again after a restart', async () => {
    await on.window.click('branch-before');
    const question = 'Summarise this chapter at length.';
    const shown = async () => (await on.window.text('user-message')).includes(question);
    await until('the first question is shown', shown);
    assert.deepEqual(await on.window.texts('branch'), ['1/2', '2/2']);
    // The first answer of the two.
    await on.window.session.click(
      '[data-testid="assistant-message"] [data-testid="branch-before"]',
    );
    await until('the first answer is shown', async () =>
      (await on.window.answer()).text.startsWith(first.text),
    );

    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop);
    await until('the list of chats is there', async () => on.window.has('chat-item'));
    await on.window.session.click('[data-testid="chat-item"] .open');
    await until('the branch is shown', async () => (await on.window.texts('branch')).length === 2);
    assert.deepEqual(await on.window.texts('branch'), ['1/2', '1/2']);
    assert.equal((await on.window.answer()).text, first.text);
  });
});
