import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { SLOW } from './lib/window.mjs';
import { Key } from './lib/webdriver.mjs';

/** Some 400 tokens, so that a budget of 64 leaves most of it out. */
const NOTES = Array.from(
  { length: 24 },
  (_, i) => `Room ${i + 1} of the archive holds the maps of year ${1800 + 7 * i}.`,
).join(' ');

story('comparing caches', (step, on) => {
  const columns = () =>
    on.window.session.run(() => {
      const of = (column, id) => column.querySelector(`[data-testid="${id}"]`);
      return [...document.querySelectorAll('[data-testid="compare-column"]')].map((column) => ({
        phase: column.dataset.phase,
        hot: Number(of(column, 'compare-hot').dataset.amount),
        store: Number(of(column, 'compare-store').dataset.amount),
        speed: Number(of(column, 'compare-speed').dataset.amount),
        read: Number(of(column, 'compare-prefill').dataset.amount),
        state: of(column, 'compare-state').innerText.trim(),
        text: of(column, 'compare-answer').querySelector('.text').innerText,
        marks: column.querySelectorAll('ins, del').length,
        problem: of(column, 'compare-problem')?.innerText ?? null,
      }));
    });
  const ended = () =>
    until(
      'the comparison has ended',
      async () => (await on.window.has('compare-run')) && columns(),
      SLOW,
    );
  const hotOfAll = () => on.window.bytes('gauge-hot');

  step('opens with the keyboard and takes along what is typed and attached', async () => {
    const notes = path.join(on.desktop.data, 'notes.txt');
    fs.writeFileSync(notes, NOTES);
    const [chip] = await on.window.attach(notes);
    assert.ok(chip.tokens > 300, `${chip.tokens} tokens`);
    await on.window.session.type('[data-testid="composer"]', 'Which maps does room 3 hold?');
    await on.window.session.chord(Key.control, Key.shift, 'c');
    await until('it is open', () => on.window.has('compare-question'));
    assert.equal(await on.window.text('compare-place'), 'A new chat with notes.txt.');
    const value = () => document.querySelector('[data-testid="compare-question"]').value;
    assert.equal(await on.window.session.run(value), 'Which maps does room 3 hold?');
  });

  step('answers under everything and under 64 tokens, one after the other', async () => {
    await on.window.session.fill('[data-testid="compare-max-tokens"]', '20');
    const budget = '[data-testid="compare-column"]:nth-child(2) [data-testid="compare-budget"]';
    await on.window.session.fill(budget, '64');
    await on.window.click('compare-run');
    await until('the second waits while the first is answered', async () => {
      const [first, second] = await columns();
      return ['reading', 'writing'].includes(first.phase) && second.phase === 'waiting';
    });
    const [full, small] = await ended();
    assert.deepEqual([full.phase, small.phase], ['done', 'done']);
    for (const { text, read, speed } of [full, small]) {
      assert.ok(text.length > 0 && read > 0 && speed > 0);
    }
    assert.ok(small.hot > 0 && small.hot < full.hot / 3, `${small.hot} of ${full.hot} bytes`);
    assert.ok(small.store > small.hot, 'what was evicted is in the store');
    assert.match(small.state, /^(Differs from A from|The same as A, word for word)/);
    if (/^Differs/.test(small.state)) assert.ok(small.marks > 0);
  });

  step('gives all of its memory back', async () => {
    await until('no entries are left', async () => (await hotOfAll()) === 0);
  });

  step('stops at once, and says what was left out', async () => {
    await on.window.click('preset-policies');
    await on.window.click('compare-run');
    await until('it reads', async () => (await columns())[0].phase === 'reading');
    await on.window.press(Key.escape);
    const phases = (await ended()).map(({ phase }) => phase);
    assert.deepEqual(phases, ['stopped', 'stopped', 'stopped']);
    assert.equal((await columns())[2].state, 'Left out.');
    await until('no entries are left', async () => (await hotOfAll()) === 0);
  });

  step('says in a sentence why a column cannot be had, and answers the others', async () => {
    // Past the trained context the policy that keeps everything has nothing to let go of.
    const notes = path.join(on.desktop.data, 'long.txt');
    fs.writeFileSync(notes, `${NOTES}\n`.repeat(24));
    await on.window.press(Key.escape);
    const chips = await on.window.attach(notes);
    const chip = chips.find(({ name }) => name === 'long.txt');
    assert.ok(chip.tokens > 8192, `${chip.tokens} tokens`);
    await on.window.click('open-compare');
    await on.window.click('preset-everything');
    await on.window.click('compare-run');
    const failed = await until('the first has failed', async () => {
      const [first, second] = await columns();
      return first.phase === 'failed' && second.phase !== 'waiting' && first;
    });
    assert.match(failed.problem, /8192/);
    // The rest would take minutes.
    await on.window.click('compare-stop');
    assert.deepEqual(
      (await ended()).map(({ phase }) => phase),
      ['failed', 'stopped'],
    );
    await on.window.press(Key.escape);
    await until('it is closed', async () => !(await on.window.has('compare-question')));
    await on.window.session.run(() => {
      for (const chip of document.querySelectorAll('[data-testid="document-chip"] button')) chip.click();
      document.querySelector('[data-testid="composer"]').value = '';
      document.querySelector('[data-testid="composer"]').dispatchEvent(new Event('input'));
    });
  });

  step('leaves the chat as it was, and keeps its last comparison', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 16 });
    await on.window.ask('Name three colours of the rainbow.');
    const { failure } = await on.window.answered();
    assert.equal(failure, null);
    await on.window.click('open-compare');
    assert.match(await on.window.text('compare-place'), /^The last question of this chat, asked again/);
    await on.window.click('compare-run');
    const [full, small] = await ended();
    assert.equal(small.text, full.text, 'so short a chat fits in any budget');
    assert.match(small.state, /^The same as A, word for word\. All of it fits in this budget\./);
    const [kept] = on.desktop.query('SELECT result FROM comparisons');
    assert.equal(JSON.parse(kept.result).columns[0].text.trim(), full.text.trim());
    await on.window.press(Key.escape);
    await until('it is closed', async () => !(await on.window.has('compare-question')));

    await on.window.ask('And one more?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.prefilled < 30, `${answer.prefilled} tokens were read again`);
    assert.equal(on.desktop.query('SELECT count(*) AS n FROM messages')[0].n, 4);
  });
});
