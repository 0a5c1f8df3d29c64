import assert from 'node:assert/strict';
import os from 'node:os';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { GUIDE } from './lib/window.mjs';

story('the main job: a document, a question, a budget', (step, on) => {
  step('opens with the starter model ready', async () => {
    assert.match(await on.window.text('model-name'), /SmolLM2/i);
    assert.equal(await on.window.has('banner'), false);
    assert.equal(await on.window.has('welcome'), true);
  });

  step('measures the memory of this machine', async () => {
    await until('the gauge has a reading', async () => (await on.window.number('gauge-used')) > 0);
    assert.equal(await on.window.text('gauge-kind'), 'RAM');
    const total = os.totalmem() / 2 ** 30;
    assert.ok(Math.abs((await on.window.number('gauge-total')) - total) < 0.1);
    assert.ok((await on.window.number('gauge-used')) < total);
    // The file has 93.8 MiB; what it needs in memory is near that. The gauge follows within its second.
    const weights = async () => (await on.window.bytes('gauge-weights')) > 80 * 2 ** 20;
    await until('the gauge shows the weights', weights);
  });

  step('shows pages and tokens of a dropped PDF before anything is sent', async () => {
    const [guide, ...others] = await on.window.attach(GUIDE);
    assert.deepEqual(others, []);
    assert.equal(guide.name, 'guide.pdf');
    assert.equal(guide.error, null);
    assert.match(guide.pages, /^[3-9] pages$/);
    assert.ok(guide.tokens > 500 && guide.tokens < 5000, `${guide.tokens} tokens`);
  });

  step('streams the answer, and goes on with it while the budget is moved down', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 300 });
    await on.window.ask('Write a long and detailed summary of this guide, section by section.');

    const first = await on.window.answering(2);
    const later = await on.window.answering(first.generated + 4);
    assert.ok(later.text.length > first.text.length);
    assert.ok(later.text.startsWith(first.text.slice(0, 20)));

    const wide = await on.window.memory();
    assert.ok(wide.kept > 1000, 'the whole guide is held at first');
    await on.window.slide(0.25);
    const narrow = await until('kept entries and bytes fall to the budget', async () => {
      const memory = await on.window.memory();
      // Decoding adds up to 64 entries before it evicts them at once.
      return memory.kept <= memory.budget + 64 && memory;
    });
    assert.ok(narrow.budget < 400, `the slider set ${narrow.budget} tokens`);
    assert.ok(
      narrow.hotBytes < wide.hotBytes / 2,
      `${wide.hotBytes} bytes fell to ${narrow.hotBytes}`,
    );
    assert.ok(narrow.keptShare < 50);

    const at = await on.window.answer();
    assert.ok(at.writing, 'the answer was still being written when the slider was moved');
    const further = await on.window.answering(at.generated + 8);
    assert.ok(
      further.text.startsWith(later.text.slice(0, 20)) && further.text.length > at.text.length,
    );
  });

  step('names page and text under the pointer on the heatmap', async () => {
    const tip = await on.window.heatmapAt(0.5, 1);
    assert.match(tip, /guide\.pdf, page \d/);
    assert.match(tip, /token [\d,]+ · (kept \d+%|kept <1%|in store only|forgotten)/);
    // The text is that of the document: several words in a row stand in it.
    const words = /[a-z]+ [a-z]+ [a-z]+/i.exec(tip.split(/kept \S+|in store only|forgotten/)[1])?.[0];
    assert.ok(words, tip);
  });

  step('tells what was left out, the speed and the length at the end', async () => {
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.match(answer.tokS, /^\d+(\.\d)? tok\/s$/);
    assert.ok(answer.generated > 20);
    assert.ok(answer.prefilled > 1000);
    assert.match(await on.window.text('left-out'), /Mostly evicted now: .*guide\.pdf/);
    assert.match(await on.window.text('full-cache'), /A full cache would need \d/);
    const { hotBytes } = await on.window.memory();
    assert.ok((await on.window.bytes('hot-peak')) > hotBytes);
  });

  step('reads only what is new for the second question', async () => {
    await on.window.settings({ max_tokens: 16 });
    await on.window.ask('What is the name of the program?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.text.length > 0);
    assert.ok(
      answer.prefilled > 0 && answer.prefilled < 80,
      `${answer.prefilled} tokens were read`,
    );
    const { kept, budget } = await on.window.memory();
    assert.ok(kept <= budget + 64);
  });
});
