import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Desktop, ROOT } from './desktop.mjs';
import { CisternWindow } from './window.mjs';

/** Where pictures of the window lie after a step that failed. */
const PICTURES = path.join(ROOT, 'target/e2e');

/**
 * A suite whose steps follow each other in one window. `define` gets the function that adds a step, and `on` with
 * the `desktop` and the `window` that they share. After a step that failed the others are skipped: they would only
 * wait for what cannot come. `options` are those of the desktop; `model: false` does not wait for a model.
 */
export function story(name, define, { model = true, ...options } = {}) {
  describe(name, { timeout: 300_000 }, () => {
    const on = {};
    let broken = false;

    before(async () => {
      on.desktop = await Desktop.start(options);
      on.window = await CisternWindow.open(on.desktop, { model });
    });
    after(() => on.desktop?.close(on.window?.session));

    const step = (what, does) =>
      it(what, async (t) => {
        if (broken) {
          t.skip('a step before it failed');
          return;
        }
        try {
          await does(t);
        } catch (error) {
          broken = true;
          await keepPicture(on, `${name} - ${what}`, t);
          throw error;
        }
      });
    define(step, on);
  });
}

async function keepPicture({ desktop, window }, name, t) {
  try {
    const file = path.join(PICTURES, `${name.replace(/[^\w-]+/g, ' ')}.png`);
    fs.mkdirSync(PICTURES, { recursive: true });
    fs.writeFileSync(file, await window.session.screenshot());
    t.diagnostic(`The window at that moment: ${file}`);
    t.diagnostic(
      `What the engine wrote: ${fs.readFileSync(path.join(desktop.data, 'logs/worker.log'), 'utf8')}`,
    );
  } catch (error) {
    t.diagnostic(`No picture of the window could be had: ${error.message}`);
  }
}
