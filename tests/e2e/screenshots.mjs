// Makes the pictures of docs/screenshots from the real window: node screenshots.mjs [MODEL.gguf]. A model larger than
// the starter gives answers that are worth a picture. Others to look at come into target/screenshots.

import fs from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Desktop, ROOT } from './lib/desktop.mjs';
import { until } from './lib/until.mjs';
import { Key } from './lib/webdriver.mjs';
import { CisternWindow, GUIDE, SLOW } from './lib/window.mjs';

/** Sizes to look at; the first is kept in the repository. */
const SIZES = [
  [1280, 800],
  [900, 600],
];
const kept = path.join(ROOT, 'docs/screenshots');
const others = path.join(ROOT, 'target/screenshots');

const desktop = await Desktop.start();
let window;
try {
  window = await CisternWindow.open(desktop);
  const model = process.argv[2];
  if (model) {
    const starter = await window.text('model-name');
    await window.drop(path.resolve(model));
    await until('the model is open', async () => {
      const name = await window.text('model-name');
      return name !== undefined && name !== starter;
    });
  }
  await window.settings({ temperature: 0, max_tokens: 83 });
  await window.attach(GUIDE);
  await window.ask('What does the heatmap show?');
  await window.answered();
  await window.settings({ max_tokens: 49 });
  await window.ask('How big is the starter model?');
  await window.answered();
  // Half of the chat, on a scale that is logarithmic and ends at the model's context.
  const most = await window.session.run(() => {
    const end = document.querySelector('[aria-label="Budget"] .ends').lastElementChild;
    return Number(end.innerText.replaceAll(',', ''));
  });
  await window.slide(Math.log(640 / 64) / Math.log(most / 64));
  await until('entries are evicted', async () => (await window.memory()).keptShare < 80);
  for (const theme of ['light', 'dark']) {
    await window.theme(theme);
    await window.session.hover(600, 500);
    for (const [i, size] of SIZES.entries()) {
      await window.resize(...size);
      const folder = i === 0 ? kept : others;
      const file = path.join(folder, i === 0 ? `${theme}.png` : `${theme}-${size.join('x')}.png`);
      fs.mkdirSync(folder, { recursive: true });
      fs.writeFileSync(file, await window.session.screenshot());
      console.log(`Wrote ${path.relative(ROOT, file)}`);
    }
  }
  await window.resize(...SIZES[0]);
  const picture = async (name, folder = kept) => {
    const file = path.join(folder, `${name}.png`);
    fs.writeFileSync(file, await window.session.screenshot());
    console.log(`Wrote ${path.relative(ROOT, file)}`);
  };
  /** Of both themes and sizes, for the eyes; the first in the light one is kept, where it belongs into the README. */
  const pictures = async (name, folder = kept) => {
    for (const theme of ['dark', 'light']) {
      await window.session.run((theme) => (document.documentElement.dataset.theme = theme), theme);
      await window.resize(...SIZES[1]);
      await sleep(800);
      await picture(`${name}-${theme}-small`, others);
      await window.resize(...SIZES[0]);
      await sleep(800);
      await picture(theme === 'light' ? name : `${name}-dark`, theme === 'light' ? folder : others);
    }
  };
  await window.theme('light');

  await window.preview('document-open', 'guide.pdf');
  await sleep(3000);
  await pictures('preview');
  await window.click('preview-close');

  await window.session.chord(Key.control, Key.shift, 'c');
  await until('it is open', () => window.has('compare-question'));
  await window.session.fill('[data-testid="compare-question"]', 'What does the heatmap show?');
  await window.session.fill('[data-testid="compare-max-tokens"]', '60');
  const second = '[data-testid="compare-column"]:nth-child(2) [data-testid="compare-budget"]';
  await window.session.fill(second, '128');
  await window.click('compare-run');
  await until('it is under way', () => window.has('compare-stop'));
  await until('the comparison has ended', () => window.has('compare-run'), 2 * SLOW);
  await pictures('compare');
  await window.click('compare-close');

  await window.click('model-menu');
  await until('the models are listed', () => window.has('eject'));
  await sleep(500);
  await pictures('models', others);
} finally {
  await desktop.close(window?.session);
}
