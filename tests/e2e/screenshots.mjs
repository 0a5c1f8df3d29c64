// Makes docs/screenshots/{light,dark}.png: the real window with the real model, in the middle of its work.

import fs from 'node:fs';
import path from 'node:path';
import { Desktop, ROOT } from './lib/desktop.mjs';
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
  await window.settings({ temperature: 0, max_tokens: 160 });
  await window.attach(GUIDE);
  await window.slide(0.5);
  await window.ask('What does the heatmap show?');
  await window.answered();
  await window.settings({ max_tokens: 90 });
  await window.ask('And what does the slider do?');
  await window.answered();
  for (const theme of ['light', 'dark']) {
    await window.theme(theme);
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
