import assert from 'node:assert/strict';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';
import { CisternWindow } from './lib/window.mjs';

/** Some 500 tokens each: 200,000 together. */
const TURNS = 400;

const rows = (on) =>
  on.window.session.run(() => document.querySelectorAll('[data-testid="messages"] article').length);

/** Opens a chat by its title and gives the time until its end is painted. */
const openChat = (on, title) =>
  on.window.session.runToEnd(async (title) => {
    const frame = () => new Promise(requestAnimationFrame);
    const item = [...document.querySelectorAll('[data-testid="chat-item"] .open')].find((button) =>
      button.textContent.includes(title),
    );
    const begun = performance.now();
    item.click();
    const scroller = document.querySelector('[data-scroller]');
    const ready = () =>
      document.querySelector('[data-testid="messages"] h1')?.textContent === title &&
      document.querySelector('[data-testid="messages"] article') &&
      scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 32;
    while (!ready() && performance.now() - begun < 20_000) await frame();
    await frame();
    return performance.now() - begun;
  }, title);

/** Scrolls for `ms` by `step` pixels a frame and gives frames a second and the longest frame. */
const scroll = (on, step, ms) =>
  on.window.session.runToEnd(
    async (step, ms) => {
      const frame = () => new Promise(requestAnimationFrame);
      const scroller = document.querySelector('[data-scroller]');
      await frame();
      const begun = performance.now();
      let [last, longest, frames, work] = [begun, 0, 0, 0];
      while (last - begun < ms) {
        scroller.scrollTop += step;
        await frame();
        const before = performance.now();
        scroller.dispatchEvent(new Event('scroll'));
        await Promise.resolve();
        void scroller.scrollHeight;
        work += performance.now() - before;
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
        frames += 1;
      }
      return { fps: (1000 * frames) / (last - begun), longest, work: work / frames };
    },
    step,
    ms,
  );

story('a chat of 200,000 tokens', (step, on) => {
  const say = (what, ms, unit = 'ms') => console.log(`# ${what}: ${Math.round(ms)} ${unit}`);

  const sayMemory = () => {
    const parts = on.desktop.windowMemory();
    for (const { name, bytes } of parts) say(`memory of ${name}`, bytes / 1e6, 'MB');
    say('memory of the window', parts.reduce((sum, { bytes }) => sum + bytes, 0) / 1e6, 'MB');
  };

  step('has its window painted soon after the start, before the model is loaded', async () => {
    await on.window.shut();
    on.window = await CisternWindow.open(on.desktop, { model: false });
    const painted = await on.window.session.run(
      () =>
        performance.timeOrigin +
        (performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0),
    );
    say('start to first paint', painted - on.desktop.windowStartedMs());
    await on.window.shut();
    on.desktop.fillLongChat(TURNS);
    on.window = await CisternWindow.open(on.desktop, { model: false });
    await until('the list of chats is there', () => on.window.has('chat-item'));
  });

  step('opens at its end, with few messages in the page', async () => {
    say('opening it', await openChat(on, 'A long chat'));
    assert.match(await on.window.text('assistant-message'), new RegExp(`^Answer ${TURNS - 1}`));
    assert.ok((await rows(on)) < 40, `${await rows(on)} messages are in the page`);
  });

  step('scrolls up and down, and to a message that was asked for', async () => {
    // What the machine can do at all at this moment: a page that stands still.
    say('standing still', (await scroll(on, 0, 2000)).fps, 'frames a second');
    for (const [what, pixels] of [
      ['reading up', -24],
      ['flying up', -400],
      ['flying down', 400],
    ]) {
      const { fps, longest, work } = await scroll(on, pixels, 3000);
      say(`${what}, ${Math.abs(pixels)} px a frame`, fps, 'frames a second');
      say(`  its longest frame`, longest);
      say('  script and layout of a frame', work);
      assert.ok((await rows(on)) < 60, `${await rows(on)} messages are in the page`);
    }
    await on.window.session.run(() => (document.querySelector('[data-scroller]').scrollTop = 0));
    await until('the first message is there', async () =>
      (await on.window.texts('user-message'))[0]?.startsWith('Question 0:'),
    );
  });

  step('is typed into without waiting', async () => {
    await on.window.session.run(() => {
      const area = document.querySelector('[data-testid="composer"]');
      area.focus();
      globalThis.keys = [];
      area.addEventListener('keydown', (event) => {
        // After the frame in which the letter appears.
        requestAnimationFrame(() => {
          const channel = new MessageChannel();
          channel.port1.onmessage = () => globalThis.keys.push(performance.now() - event.timeStamp);
          channel.port2.postMessage(null);
        });
      });
    });
    const sentence = 'Which of the two sluices is opened in spring, and by whom?';
    await on.window.press(...sentence);
    const { text, keys } = await on.window.session.run(() => ({
      text: document.querySelector('[data-testid="composer"]').value,
      keys: globalThis.keys.sort((a, b) => a - b),
    }));
    say('a key, median', keys[Math.floor(keys.length / 2)]);
    say('a key, slowest', keys.at(-1));
    assert.equal(text, sentence);
  });

  step('keeps its memory small', sayMemory);

  step('shows a single huge answer without holding all of it', async () => {
    say('opening the huge answer', await openChat(on, 'A huge answer'));
    const { fps, longest } = await scroll(on, -200, 3000);
    say('flying up in it', fps, 'frames a second');
    say('  its longest frame', longest);
    const elements = await on.window.session.run(
      () => document.querySelectorAll('[data-testid="messages"] *').length,
    );
    say('elements in the thread', elements, '');
    assert.ok(elements < 6000, `${elements} elements are in the page`);
    sayMemory();
  });
});
