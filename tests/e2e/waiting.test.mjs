import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './lib/desktop.mjs';
import { longPdf } from './lib/pdf.mjs';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';

const NOVEL = path.join(ROOT, 'engine/tests/texts/pride-and-prejudice-opening.txt');
const PAGES = 600;

story('what takes long says how far it is, and can be called off', (step, on) => {
  let file;
  const facts = () =>
    on.window.session.run(
      () => document.querySelector('[data-testid="document-chip"] .facts')?.innerText ?? null,
    );

  // jan#8244, lms#140
  step(
    'counts the pages of a long PDF as they are read, and stops at once when told to',
    async () => {
      await on.window.settings({ temperature: 0, max_tokens: 8 });
    file = path.join(on.desktop.data, 'long.pdf');
      fs.writeFileSync(file, longPdf(PAGES));
      await on.window.drop(file);
      const seen = new Set();
      await until('pages are counted', async () => {
        const [, page, all] = /page ([\d,]+) of ([\d,]+)/.exec((await facts()) ?? '') ?? [];
        if (page) {
          assert.equal(all, `${PAGES}`);
          seen.add(page);
        }
        return seen.size >= 3;
      });
      await on.window.click('chip-remove');
      await until('the document is gone', async () => !(await on.window.has('document-chip')));
      await on.window.ask('Are you there?');
      assert.equal((await on.window.answered()).failure, null);
    },
  );

  step('reads it to its last page all the same', async () => {
    const [chip] = await on.window.attach(file);
    assert.equal(chip.phase, 'ready');
    assert.equal(chip.pages, `${PAGES} pages`);
    assert.ok(chip.tokens > 100 * PAGES, `${chip.tokens} tokens`);
    await on.window.click('chip-remove');
  });

  // lms#1484
  step(
    'answers two chats that are asked together, and says that the second one waits',
    async () => {
      const notes = path.join(on.desktop.data, 'notes.txt');
      fs.writeFileSync(notes, fs.readFileSync(NOVEL, 'utf8').slice(0, 4000));
      await on.window.settings({ temperature: 0, max_tokens: 24 });
      await on.window.click('new-chat');
      await on.window.attach(notes);
      await on.window.ask('Who is Mr. Bingley?');
      await until('the first is being read', async () =>
        /Reading exactly/.test((await on.window.text('prefill-mode')) ?? ''),
      );
      await on.window.click('new-chat');
      await on.window.attach(notes);
      await on.window.ask('Who is Mrs. Long?');
      await until(
        'the second waits',
        async () =>
          (await on.window.text('prefill-mode')) === 'Waiting until another answer is written',
      );
      const second = await on.window.answered();
      assert.equal(second.failure, null);
      assert.ok(second.text.length > 0);
      const rows = on.desktop.query(
        "SELECT text, problem FROM messages WHERE role = 'assistant' ORDER BY id DESC LIMIT 2",
      );
      for (const { text, problem } of rows) {
        assert.equal(problem, null);
        assert.ok(text.length > 0);
      }
    },
  );
});
