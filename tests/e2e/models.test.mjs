import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';

/** A GGUF file of version 3 without tensors, whose metadata names an architecture. */
function gguf(architecture) {
  const u32 = (n) => Buffer.from(Uint32Array.of(n).buffer);
  const u64 = (n) => Buffer.from(BigUint64Array.of(BigInt(n)).buffer);
  const string = (text) => Buffer.concat([u64(Buffer.byteLength(text)), Buffer.from(text)]);
  const STRING = 8;
  const entry = [string('general.architecture'), u32(STRING), string(architecture)];
  return Buffer.concat([Buffer.from('GGUF'), u32(3), u64(0), u64(1), ...entry]);
}

story('a dropped file that is no model for Cistern', (step, on) => {
  const refused = async (name, content) => {
    const file = path.join(on.desktop.data, name);
    fs.writeFileSync(file, content);
    await on.window.drop(file);
    const says = await until('the refusal is shown', () => on.window.text('toasts'));
    await on.window.session.click('[data-testid="toasts"] [aria-label="Dismiss"]');
    await until('the notice is gone', async () => (await on.window.text('toasts')) === '');
    return says;
  };

  step('is refused in one sentence where its name says GGUF and its bytes do not', async () => {
    const says = await refused('notes.gguf', 'These are my notes on models.');
    assert.match(says, /notes\.gguf/);
    assert.match(says, /GGUF/);
    assert.match(says, /^[^\n]+\.$/);
  });

  step('is refused by the name of its architecture, with what is supported', async () => {
    const says = await refused('old.gguf', gguf('gpt2'));
    assert.match(says, /gpt2/);
    for (const supported of ['llama', 'qwen2', 'qwen3']) assert.ok(says.includes(supported), says);
    assert.match(says, /^[^\n]+\.$/);
  });

  step('leaves the window with a model that answers', async () => {
    await on.window.modelReady();
    await on.window.settings({ temperature: 0, max_tokens: 8 });
    await on.window.ask('What is a cistern?');
    const answer = await on.window.answered();
    assert.equal(answer.failure, null);
    assert.ok(answer.text.length > 0);
  });
});
