import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after } from 'node:test';
import { STARTER } from './lib/desktop.mjs';
import { Hub } from './lib/hub.mjs';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { CisternWindow } from './lib/window.mjs';

const FILE = path.basename(STARTER);
const OTHER = 'Qwen3-0.6B-Q8_0.gguf';
const hub = await Hub.start({ [FILE]: STARTER, [OTHER]: 639446688 });
after(() => hub.stop());

story(
  'models: from the first start to the last byte, and off the disk again',
  (step, on) => {
    const folder = () => path.join(on.desktop.data, 'xdg/data/cistern/models');
    const part = (name = FILE) => path.join(folder(), `${name}.part`);
    const size = (file) => (fs.existsSync(file) ? fs.statSync(file).size : 0);
    const inRow = (id, what) => `[data-testid="model-entry"][data-id="${id}"] ${what}`;
    const starter = (what) => inRow('smollm2-135m-instruct', what);
    const read = (css) =>
      on.window.session.run((css) => document.querySelector(css)?.innerText.trim() ?? null, css);
    const button = (id) => `[data-testid="${id}"]`;
    let paused;

    step('a first start says what each model takes of the memory that is measured', async () => {
      assert.equal(await on.window.has('welcome'), true);
      const scrolled = () => document.querySelector('main [data-scroller]').scrollTop;
      assert.equal(await on.window.session.run(scrolled), 0, 'the list is shown from its top');
      const says = await until('the fit is known', async () => {
        const text = await read(starter(button('fit')));
        return /free/.test(text ?? '') && text.replace(/\s+/g, ' ');
      });
      assert.match(says, /^fits about \d+ MiB of [\d.]+ GiB free$/);
      assert.doesNotMatch(await read(button('model-list')), /NaN|undefined|unknown/);
    });

    step('a download shows speed and time left, and pauses', async () => {
      hub.rate = 12e6;
      await on.window.session.click(starter(button('fetch-model')));
      await until('speed and time left are shown', async () =>
        /^[\d.]+ MiB of 93\.8 MiB · [\d.]+ MiB\/s · \d+ s left$/.test(
          (await read(starter(button('fetch-progress')))) ?? '',
        ),
      );
      await until('something has arrived', () => size(part()) > 8e6);
      await on.window.session.click(starter(button('pause-fetch')));
      await until('it is paused', async () =>
        /^Paused at/.test((await read(starter(button('fetch-progress')))) ?? ''),
      );
      paused = size(part());
      assert.ok(paused > 8e6 && paused < 90e6, `${paused} bytes`);
      assert.equal(fs.existsSync(path.join(folder(), FILE)), false);
    });

    step('goes on after a restart where it was, is checked, and opens', async () => {
      await on.window.shut();
      on.window = await CisternWindow.open(on.desktop, { model: false });
      assert.match(
        await until('the paused download is listed', () => read(starter(button('fetch-progress')))),
        /^Paused at [\d.]+ MiB of 93\.8 MiB \(\d+%\)$/,
      );
      // What was being written when it was paused is there by now.
      paused = size(part());
      hub.rate = Number.POSITIVE_INFINITY;
      await on.window.session.click(starter(button('resume-fetch')));
      await on.window.modelReady();
      assert.deepEqual(
        hub.requests.map(({ start }) => start),
        [0, paused],
      );
      assert.equal(size(path.join(folder(), FILE)), fs.statSync(STARTER).size);
      assert.equal(fs.existsSync(part()), false);
      await on.window.settings({ temperature: 0, max_tokens: 8 });
      await on.window.ask('What is a cistern?');
      assert.equal((await on.window.answered()).failure, null);
    });

    step('given up, a download leaves nothing on the disk', async () => {
      hub.rate = 4e6;
      await on.window.click('model-menu');
      await on.window.session.click(inRow('qwen3-0.6b', button('fetch-model')));
      await until('something has arrived', () => size(part(OTHER)) > 1e6);
      await on.window.session.click(inRow('qwen3-0.6b', button('cancel-fetch')));
      await until('nothing is left', () => !fs.existsSync(part(OTHER)));
      await until('it can be fetched anew', async () =>
        read(inRow('qwen3-0.6b', button('fetch-model'))),
      );
      assert.deepEqual(fs.readdirSync(folder()), [FILE]);
    });

    step('where the network is forbidden, nothing is asked of it', async () => {
      await on.window.press('\uE00C');
      const toggle = async () => {
        await on.window.click('open-settings');
        await on.window.click('offline');
        await on.window.press('\uE00C');
      };
      await toggle();
      const before = hub.requests.length;
      await on.window.click('model-menu');
      await on.window.session.click(inRow('qwen3-0.6b', button('fetch-model')));
      const says = await until('the refusal is shown', () =>
        read(inRow('qwen3-0.6b', button('fetch-failed'))),
      );
      assert.match(says, /^Network use is switched off in the settings, [^\n]+\.$/);
      assert.equal(hub.requests.length, before);
      await on.window.press('\uE00C');
      await toggle();
    });

    step('deleted while it is open, a model leaves memory and disk', async () => {
      const worker = on.desktop.worker();
      const open = on.desktop.resident(worker);
      assert.ok(open > 100 * 2 ** 20, `${open} bytes`);
      await on.window.click('model-menu');
      await on.window.session.click(starter(button('remove-model')));
      await on.window.click('remove-confirm');
      await until('the file is gone', () => !fs.existsSync(path.join(folder(), FILE)));
      await until('the memory is given back', () => on.desktop.resident(worker) < 60 * 2 ** 20);
      assert.equal(on.desktop.worker(), worker, 'the engine itself is still there');
      await until('it can be downloaded again', () => read(starter(button('fetch-model'))));
      const weightless = async () => (await on.window.bytes('gauge-weights')) === 0;
      await until('the gauge shows no weights', weightless, 3000);
    });
  },
  {
    installed: true,
    model: false,
    env: { HF_ENDPOINT: hub.endpoint, CISTERN_MODELS: '' },
  },
);
