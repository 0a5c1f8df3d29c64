import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { Key } from './lib/webdriver.mjs';
import { CisternWindow, GUIDE } from './lib/window.mjs';

const NOTES = 'notes.txt';
const SECRET = 'The lighthouse keeper hides the brass key under the third stair of the tower.';

story('a document beside the thread', (step, on) => {
  let guide;

  step('opens from its chip in the composer, before anything is sent', async () => {
    guide = path.join(on.desktop.data, 'guide.pdf');
    fs.copyFileSync(GUIDE, guide);
    await on.window.attach(guide);
    await on.window.preview('chip-open', 'guide.pdf');
    await until('a page is drawn', () => on.window.pageDrawn(1));
    assert.match(await on.window.pageText(1), /Cistern/);
    await on.window.click('preview-close');
  });

  step('shows the pages of a PDF from its chip in the thread, and jumps to any of them', async () => {
    await on.window.settings({ temperature: 0, max_tokens: 8 });
    await on.window.ask('What is this about?');
    assert.equal((await on.window.answered()).failure, null);
    await on.window.preview('document-open', 'guide.pdf');
    await until('a page is drawn', () => on.window.pageDrawn(1));
    await on.window.session.fill('[data-testid="preview-number"]', '3');
    await until('the third page is drawn', () => on.window.pageDrawn(3));
    assert.ok((await on.window.pagesDrawn()) < 5, 'only what is near is drawn');
  });

  step('shades the words by what is held of them, and follows the slider', async () => {
    const whole = await until('the words are shaded', async () => {
      const words = await on.window.shade(3);
      return words.words > 50 && words.unread === 0 && words;
    });
    assert.equal(whole.store + whole.forgotten, 0, 'everything is held at first');
    assert.equal(whole.share, 100);
    const took = await on.window.slideAndWatch(0.15);
    console.log(`A slider move showed in heatmap and gauge after ${took} ms.`);
    const few = await until('words are shown as evicted', async () => {
      const words = await on.window.shade(3);
      return words.share < 50 && words;
    });
    assert.equal(few.words, whole.words);
    assert.ok(few.recent < whole.words / 2, JSON.stringify(few));
  });

  step('keeps a selected passage in memory, lists it, and lets it go again', async () => {
    const words = await on.window.select(3, 40, 160);
    await until('the button is there', () => on.window.has('selection-pin'));
    const tokens = await on.window.session.run(() =>
      Number(document.querySelector('[data-testid="selection-pin"]').dataset.tokens),
    );
    assert.ok(tokens > 5 && tokens < 80, `${tokens} tokens for “${words}”`);
    await on.window.session.run(() =>
      window.dispatchEvent(
        new KeyboardEvent('keydown', { key: 'P', ctrlKey: true, shiftKey: true, bubbles: true }),
      ),
    );
    const [pinned] = await until('the passage is listed', async () => {
      const list = await on.window.texts('pinned-passage');
      return list.length === 1 && list;
    });
    assert.match(pinned, /guide\.pdf, page 3/);
    await until('its words are shown as pinned', async () => (await on.window.shade(3)).pinned > 3);
    await on.window.click('unpin');
    await until('nothing is listed', async () => !(await on.window.has('pinned-passage')));
    await until('no word is pinned', async () => (await on.window.shade(3)).pinned === 0);
  });

  step('takes another document at a later turn, and shows a text as well', async () => {
    const notes = path.join(on.desktop.data, NOTES);
    const filler = 'The sea was calm and the lamp was lit as on every other evening of that year.';
    fs.writeFileSync(notes, [filler, filler, SECRET, filler, filler].join('\n'));
    await on.window.attach(notes);
    await on.window.ask('Where does the keeper hide the brass key?');
    assert.equal((await on.window.answered()).failure, null);
    await on.window.preview('document-open', NOTES);
    await until('the text is there', async () => (await on.window.pageText(1)).includes(SECRET));
    await until('its words are shaded', async () => (await on.window.shade(1)).words > 30);
    await on.window.click('preview-close');
  });

  step('leads from what a question brought back to the page', async () => {
    await on.window.ask('What does the heatmap show?');
    assert.equal((await on.window.answered()).failure, null);
    const looked = await on.window.text('looked-again');
    assert.match(looked, /guide\.pdf|notes\.txt/);
    await on.window.session.click('[data-testid="looked-again"] button');
    await until('the document is open', () => on.window.has('preview'));
    await until('something is drawn', async () => (await on.window.pagesDrawn()) > 0);
    await on.window.click('preview-close');
  });

  step('leads from the heatmap to the page', async () => {
    const { x, y, width, height } = await on.window.box('heatmap');
    await on.window.session.hover(x + width * 0.5, y + (height / 6) * 1.7);
    await until('the pointer is on a page', async () =>
      /page \d/.test((await on.window.text('heatmap-tip')) ?? ''),
    );
    await on.window.session.drag([x + width * 0.5, y + (height / 6) * 1.7]);
    await until('the document is open', () => on.window.has('preview'));
    await on.window.click('preview-close');
  });

  step('shades the thread and shows the layers on demand', async () => {
    await on.window.click('shade-thread');
    // Each message is shaded when the engine has said what it kept of it: one after the other.
    await until('three messages are shaded', () =>
      on.window.session.run(
        () =>
          [...document.querySelectorAll('[data-testid="messages"] [data-testid="shade"]')].filter(
            (canvas) => Number(canvas.dataset.words) > 0,
          ).length >= 3,
      ),
    );
    await on.window.session.click('[data-testid="layers"] summary');
    const map = await until('the layers are drawn', () =>
      on.window.session.run(() => {
        const { layers, bins } = document.querySelector('[data-testid="layer-map"]').dataset;
        return Number(layers) > 1 && { layers: Number(layers), bins: Number(bins) };
      }),
    );
    assert.equal(map.layers, 30);
  });

  step('still shows the pages after a restart, when the file has gone', async () => {
    fs.rmSync(guide);
    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop);
    await until('the chat is listed', async () => (await on.window.texts('chat-item')).length === 1);
    await on.window.session.click('[data-testid="chat-item"] .open');
    await on.window.preview('document-open', 'guide.pdf');
    await until('a page is drawn', () => on.window.pageDrawn(1));
    assert.match(await on.window.pageText(1), /Cistern/);
    assert.equal(fs.readdirSync(path.join(on.desktop.data, 'documents')).length, 1);
    await on.window.press(Key.escape);
  });
});

story('a long paste', (step, on) => {
  const paste = (text) =>
    on.window.session.run((text) => {
      const data = new DataTransfer();
      data.setData('text/plain', text);
      const event = new ClipboardEvent('paste', {
        clipboardData: data,
        bubbles: true,
        cancelable: true,
      });
      document.querySelector('[data-testid="composer"]').dispatchEvent(event);
    }, text);
  const typed = () =>
    on.window.session.run(() => document.querySelector('[data-testid="composer"]').value);

  step('becomes an attachment with a name, which can be looked at and put into the text', async () => {
    const text = `Minutes of the meeting. ${'We talked about the harbour and the lamp. '.repeat(70)}`;
    await paste(text);
    const [chip] = await until('the chip is ready', async () => {
      const chips = await on.window.chips();
      return chips.every(({ phase }) => phase === 'ready') && chips.length === 1 && chips;
    });
    assert.match(chip.name, /Minutes of the meeting/);
    assert.ok(chip.tokens > 500, `${chip.tokens} tokens`);
    assert.equal(await typed(), '');
    await on.window.preview('chip-open', 'Minutes');
    await until('its text is shown', async () => /harbour/.test(await on.window.pageText(1)));
    await on.window.click('preview-close');
    await on.window.click('chip-insert');
    assert.ok((await typed()).startsWith('Minutes of the meeting.'));
    assert.equal((await on.window.chips()).length, 0);
    await on.window.session.run(() => {
      const area = document.querySelector('[data-testid="composer"]');
      area.value = '';
      area.dispatchEvent(new Event('input', { bubbles: true }));
    });
  });

  step('of half a million tokens leaves the window quick, and it opens again (lms#439)', async () => {
    const words = Array.from({ length: 140_000 }, (_, i) => `word${i % 997}`).join(' ');
    await paste(words);
    const [chip] = await until(
      'it is counted',
      async () => {
        const chips = await on.window.chips();
        return chips.length === 1 && chips[0].phase === 'ready' && chips;
      },
      180_000,
    );
    assert.ok(chip.tokens > 500_000, `${chip.tokens} tokens`);
    const slowest = await on.window.typing('What is this about?');
    console.log(`Slowest key with ${chip.tokens} tokens attached: ${slowest} ms.`);
    await on.window.press(Key.enter);
    await until('it is being read', () => on.window.has('prefill-progress'), 120_000);
    await on.window.press(Key.escape);
    await until('it is stopped', async () => !(await on.window.answer()).writing, 120_000);
    await on.window.preview('document-open', 'word0');
    await until('its text is shown', async () => /word1/.test(await on.window.pageText(1)));
    assert.ok((await on.window.pagesDrawn()) < 40, 'only what is near is laid out');
    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop);
    await until('the chat is listed', () => on.window.has('chat-item'));
    await on.window.session.click('[data-testid="chat-item"] .open');
    await until('the chat is there again', () => on.window.has('document-open'), 20_000);
  });
});
