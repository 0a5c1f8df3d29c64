// The window in the words of a person who uses it.

import path from 'node:path';
import { ROOT } from './desktop.mjs';
import { until } from './until.mjs';
import { Key } from './webdriver.mjs';

/** What a busy machine with two cores may need to read a document of a few pages. */
export const SLOW = 150_000;

export const GUIDE = path.join(ROOT, 'docs/guide.pdf');

const by = (id) => `[data-testid="${id}"]`;

export class CisternWindow {
  #desktop;
  #session;

  constructor(desktop, session) {
    this.#desktop = desktop;
    this.#session = session;
  }

  /** Opens the window; `model: false` does not wait for one. */
  static async open(desktop, { model = true } = {}) {
    const window = new CisternWindow(desktop, await desktop.open());
    await until('the page is drawn', () => window.has('composer'));
    if (model) await window.modelReady();
    return window;
  }

  get session() {
    return this.#session;
  }

  shut() {
    return this.#desktop.shut(this.#session);
  }

  /** Closes the window as a person does. */
  quit() {
    return this.#desktop.quit();
  }

  modelReady() {
    return until('a model is open', () => this.has('model-name'), SLOW);
  }

  has(id) {
    return this.#session.run((css) => document.querySelector(css) !== null, by(id));
  }

  /** Texts of everything that carries this test id, in the order of the page. */
  texts(id) {
    const read = (css) =>
      [...document.querySelectorAll(css)].map((e) => e.innerText.replace(/\s+/g, ' ').trim());
    return this.#session.run(read, by(id));
  }

  /** The last of them; `undefined` where there is none. */
  async text(id) {
    return (await this.texts(id)).at(-1);
  }

  /** The first whole or decimal number in that text. */
  async number(id) {
    return Number(/[\d,]+(\.\d+)?/.exec((await this.text(id)) ?? '')?.[0].replaceAll(',', ''));
  }

  /** Bytes to the byte, where the text rounds them. */
  bytes(id) {
    return this.#session.run((css) => Number(document.querySelector(css)?.dataset.bytes), by(id));
  }

  click(id) {
    return this.#session.click(by(id));
  }

  /** Chooses one of a group, whose own buttons are not drawn. */
  choose(id) {
    return this.#session.run((css) => document.querySelector(css).click(), by(id));
  }

  press(...keys) {
    return this.#session.press(...keys);
  }

  chord(held, key) {
    return this.#session.chord(held, key);
  }

  async box(id) {
    await this.#session.run(
      (css) => document.querySelector(css).scrollIntoView({ block: 'nearest' }),
      by(id),
    );
    return this.#session.run((css) => {
      const { x, y, width, height } = document.querySelector(css).getBoundingClientRect();
      return { x, y, width, height };
    }, by(id));
  }

  /** Drops files on the thread. */
  async drop(...paths) {
    const { x, y } = await this.#session.run(() => ({ x: window.screenX, y: window.screenY }));
    await this.#desktop.drop(paths, [x + 600, y + 300]);
  }

  /** Drops documents and waits until each is read, locked or refused. */
  async attach(...paths) {
    const before = (await this.texts('document-chip')).length;
    await this.drop(...paths);
    return until('the documents are read', async () => {
      const chips = await this.chips();
      const settled = ({ phase, locked }) => locked || phase === 'ready' || phase === 'failed';
      return chips.length === before + paths.length && chips.every(settled) && chips;
    });
  }

  /** The documents in the composer. */
  chips() {
    return this.#session.run(() => {
      const text = (chip, id) =>
        chip.querySelector(`[data-testid="${id}"]`)?.innerText.trim() ?? null;
      return [...document.querySelectorAll('[data-testid="document-chip"]')].map((chip) => ({
        name: chip.querySelector('.name').innerText,
        phase: chip.dataset.phase,
        locked: chip.querySelector('[data-testid="pdf-password"]') !== null,
        pages: text(chip, 'chip-pages'),
        tokens: Number(/[\d,]+/.exec(text(chip, 'chip-tokens') ?? '')?.[0].replaceAll(',', '')),
        error: text(chip, 'chip-error'),
        problem: text(chip, 'chip-problem'),
        wrongPassword: text(chip, 'password-wrong'),
      }));
    });
  }

  /** Gives a locked document its password. */
  async unlock(password) {
    await this.#session.type(by('pdf-password'), password);
    await this.click('pdf-unlock');
  }

  /** Types a question and sends it. */
  async ask(question) {
    const answers = (await this.texts('assistant-message')).length;
    await this.#session.type(by('composer'), question);
    await until('the question can be sent', () =>
      this.#session.run((css) => document.querySelector(css)?.disabled === false, by('send')),
    );
    await this.press(Key.enter);
    await until(
      'the question is in the thread',
      async () => (await this.texts('assistant-message')).length === answers + 1,
    );
  }

  /** The newest answer as it stands. */
  answer() {
    return this.#session.run((css) => {
      const last = [...document.querySelectorAll(css)].at(-1);
      const text = (id) => last?.querySelector(`[data-testid="${id}"]`)?.innerText ?? null;
      return {
        text: [...(last?.querySelectorAll('.markdown') ?? [])]
          .map((e) => e.innerText)
          .join('\n')
          .trim(),
        writing: last?.getAttribute('aria-busy') === 'true',
        stopped: /\bStopped\b/.test(last?.querySelector('footer')?.innerText ?? ''),
        failure: text('failure'),
        tokS: text('tok-s'),
        generated: Number(/[\d,]+/.exec(text('generated') ?? '0')?.[0].replaceAll(',', '')),
        prefilled: Number(/[\d,]+/.exec(text('prefilled') ?? '')?.[0].replaceAll(',', '')),
      };
    }, by('assistant-message'));
  }

  /** Waits until the newest answer is being written and has so many tokens. */
  answering(tokens = 1) {
    return until(
      `an answer of ${tokens} tokens`,
      async () => {
        const answer = await this.answer();
        return answer.text !== '' && answer.generated >= tokens && answer;
      },
      SLOW,
    );
  }

  /** Waits for the end of the newest answer. */
  answered() {
    return until(
      'the answer is complete',
      async () => {
        const answer = await this.answer();
        return !answer.writing && answer;
      },
      SLOW,
    );
  }

  /** Figures of the inspector, read at one moment. */
  memory() {
    return this.#session.run(() => {
      const element = (id) => document.querySelector(`[data-testid="${id}"]`);
      const number = (id) => Number(/[\d,]+/.exec(element(id).innerText)?.[0].replaceAll(',', ''));
      return {
        budget: number('budget-tokens'),
        kept: number('kept-count'),
        hotBytes: Number(element('hot-bytes').dataset.bytes),
        keptShare: number('kept-share'),
      };
    });
  }

  /** Drags the handle of the budget to a place on its scale, 0 to 1. */
  async slide(to) {
    const { x, y, width, height } = await this.box('budget-slider');
    const from = await this.#session.run((css) => {
      const slider = document.querySelector(css);
      return slider.value / slider.max;
    }, by('budget-slider'));
    const at = (share) => [x + 8 + (width - 16) * share, y + height / 2];
    await this.#session.drag(at(from), at((from + to) / 2), at(to));
  }

  /** Presses what opens the document of this name beside the thread. */
  async preview(id, name) {
    await until(`${name} can be opened`, () =>
      this.#session.run(
        (css, name) => {
          const found = [...document.querySelectorAll(css)].find((e) => e.textContent.includes(name));
          found?.click();
          return found !== undefined;
        },
        by(id),
        name,
      ),
    );
    await until('the document is beside the thread', async () => {
      const title = (css) => document.querySelector(css)?.innerText;
      return (await this.#session.run(title, `${by('preview')} h2`))?.includes(name);
    });
  }

  /** Whether a page has ink on its paper. */
  pageDrawn(page) {
    return this.#session.run((page) => {
      const canvas = document.querySelector(`[data-page="${page}"] canvas.picture`);
      if (!canvas?.width) return false;
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 0 && data[i] < 128) return true;
      return false;
    }, page);
  }

  /** How many pages or parts of a text are laid out. */
  pagesDrawn() {
    return this.#session.run(() => document.querySelectorAll('[data-testid="page-text"]').length);
  }

  pageText(page) {
    return this.#session.run(
      (page) =>
        [...document.querySelectorAll(`[data-page="${page}"] [data-testid="page-text"]`)]
          .map((e) => e.textContent)
          .join(''),
      page,
    );
  }

  /** How many words of a page are drawn as what. */
  shade(page) {
    return this.#session.run((page) => {
      const data = document.querySelector(`[data-page="${page}"] [data-testid="shade"]`)?.dataset;
      const number = (name) => Number(data?.[name] ?? 0);
      const names = ['words', 'share', 'unread', 'kept', 'recent', 'pinned', 'store', 'forgotten'];
      return Object.fromEntries(names.map((name) => [name, number(name)]));
    }, page);
  }

  /** Selects some letters of a page, and says which. */
  select(page, from, to) {
    return this.#session.run(
      (page, from, to) => {
        const host = document.querySelector(`[data-page="${page}"] [data-testid="page-text"]`);
        const walker = document.createTreeWalker(host, NodeFilter.SHOW_TEXT);
        const range = document.createRange();
        let [at, begun] = [0, false];
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
          if (!begun && at + node.length > from) {
            range.setStart(node, from - at);
            begun = true;
          }
          if (at + node.length >= to) {
            range.setEnd(node, to - at);
            break;
          }
          at += node.length;
        }
        const selection = getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        return `${range}`;
      },
      page,
      from,
      to,
    );
  }

  /** Sets the slider at once and says after how many milliseconds heatmap and gauge have followed. */
  slideAndWatch(to) {
    return this.#session.runAsync(
      (to, done) => {
        const text = (id) => document.querySelector(`[data-testid="${id}"]`).innerText;
        const before = { share: text('kept-share'), bytes: text('hot-bytes') };
        const slider = document.querySelector('[data-testid="budget-slider"]');
        const started = performance.now();
        slider.value = String(Math.round(to * slider.max));
        slider.dispatchEvent(new Event('input', { bubbles: true }));
        const look = () => {
          const now = performance.now() - started;
          const moved = text('kept-share') !== before.share && text('hot-bytes') !== before.bytes;
          if (moved || now > 20_000) done(Math.round(now));
          else requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
      },
      to,
    );
  }

  /** Types into the composer, and says how long the slowest key took to be drawn, in milliseconds. */
  async typing(text) {
    await this.#session.run(() => {
      const area = document.querySelector('[data-testid="composer"]');
      area.focus();
      globalThis.slowestKey = 0;
      area.addEventListener('keydown', () => {
        const started = performance.now();
        requestAnimationFrame(() =>
          setTimeout(() => {
            globalThis.slowestKey = Math.max(globalThis.slowestKey, performance.now() - started);
          }),
        );
      });
    });
    await this.press(...text);
    return this.#session.run(() => Math.round(globalThis.slowestKey));
  }

  /** Rests the pointer on the heatmap at a share of its width in one of its rows, and reads what it says there. */
  async heatmapAt(share, row = 0) {
    const { x, y, width, height } = await this.box('heatmap');
    await this.#session.hover(x + width * share, y + (height / 6) * (row + 0.7));
    return until('the heatmap names the place and its text', async () => {
      const tip = await this.text('heatmap-tip');
      return tip && !/…$/.test(tip.replace(/["“”]/g, '')) && tip;
    });
  }

  /** Presses the button for the theme until it is this one: `system`, `light` or `dark`. */
  async theme(name) {
    const label = (css) => document.querySelector(css).getAttribute('aria-label');
    for (;;) {
      if ((await this.#session.run(label, by('theme-toggle'))).endsWith(name)) return;
      await this.click('theme-toggle');
    }
  }

  async resize(width, height) {
    await this.#desktop.exec(
      'xdotool',
      'search',
      '--name',
      '^Cistern$',
      'windowsize',
      '--sync',
      `${width}`,
      `${height}`,
    );
    await until(`the window is ${width}×${height}`, () =>
      this.#session.run((w, h) => innerWidth === w && innerHeight === h, width, height),
    );
  }

  /** Sets fields under Settings, Advanced: `{ temperature: 0, max_tokens: 64 }`. */
  async settings(fields) {
    await this.click('open-settings');
    await this.#session.run(
      () => (document.querySelector('[data-testid="settings"] details').open = true),
    );
    for (const [key, value] of Object.entries(fields)) {
      await this.#session.fill(`#sampling-${key}`, `${value}`);
    }
    await this.press(Key.escape);
    await until('the settings are closed', () =>
      this.#session.run(() => !document.querySelector('[data-testid="settings"]').open),
    );
    const kept = await this.#session.run(
      () => JSON.parse(localStorage.getItem('cistern.prefs')).sampling,
    );
    for (const [key, value] of Object.entries(fields)) {
      if (kept[key] !== value)
        throw new Error(`The setting ${key} is ${kept[key]} after ${value} was typed.`);
    }
  }
}
