// Makes docs/screenshots/{light,dark}.png of the real window: node screenshots.mjs [MODEL.gguf]. A model larger than
// the starter gives answers that are worth a picture.

import fs from 'node:fs';
import path from 'node:path';
import { Desktop, ROOT } from './lib/desktop.mjs';
import { until } from './lib/until.mjs';
import { CisternWindow, GUIDE } from './lib/window.mjs';

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
} finally {
  await desktop.close(window?.session);
}
