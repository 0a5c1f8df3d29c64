// As much of the W3C WebDriver protocol as these tests need.

import { until } from './until.mjs';

const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

/** Keys that WebDriver names by code point. */
export const Key = {
  enter: '\uE007',
  escape: '\uE00C',
  tab: '\uE004',
  shift: '\uE008',
  control: '\uE009',
};

/** What the driver refused, with its own code in `error`. */
export class WebDriverError extends Error {
  constructor(error, message) {
    super(`${error}: ${message}`);
    this.error = error;
  }
}

/** One page under automation. */
export class Session {
  #url;

  constructor(base, id) {
    this.#url = `${base}/session/${id}`;
  }

  /** Has the driver start `binary` and takes hold of its page. */
  static async start(base, binary) {
    const capabilities = {
      alwaysMatch: { browserName: 'wry', 'webkitgtk:browserOptions': { binary, args: [] } },
    };
    const { sessionId } = await call('POST', `${base}/session`, { capabilities }, 120_000);
    const session = new Session(base, sessionId);
    await session.#post('timeouts', { script: 60_000, pageLoad: 120_000, implicit: 0 });
    return session;
  }

  /** Runs the function in the page, with plain values in and out. */
  run(fn, ...args) {
    return this.#post('execute/sync', { script: `return (${fn})(...arguments)`, args });
  }

  /** The same, where the function calls back with its result. */
  runAsync(fn, ...args) {
    return this.#post('execute/async', { script: `(${fn})(...arguments)`, args });
  }

  /** Runs an async function in the page and waits for what it gives. */
  async runToEnd(fn, ...args) {
    const script = `const done = arguments[arguments.length - 1];
      (${fn})(...Array.prototype.slice.call(arguments, 0, -1))
        .then((value) => done({ value }), (error) => done({ error: String(error) }));`;
    const { value, error } = await this.#post('execute/async', { script, args });
    if (error) throw new Error(error);
    return value;
  }

  /** Runs a whole script in the page. */
  async evaluate(script) {
    await this.#post('execute/sync', { script, args: [] });
  }

  async find(css) {
    const found = await this.#post('element', { using: 'css selector', value: css });
    return found[ELEMENT];
  }

  /** Clicks as a person does, who waits until a thing that moves has come to rest. */
  async click(css) {
    await until(`${css} can be clicked`, async () => {
      await this.#post(`element/${await this.find(css)}/click`, {});
      return true;
    }, 5_000);
  }

  async type(css, text) {
    await this.#post(`element/${await this.find(css)}/value`, { text });
  }

  /** Types over what stands in a field, and leaves it. */
  async fill(css, text) {
    await this.run((css) => document.querySelector(css).select(), css);
    await this.press(...text, Key.tab);
  }

  /** Presses keys one after the other, wherever the focus is. */
  async press(...keys) {
    const actions = keys.flatMap((value) => [
      { type: 'keyDown', value },
      { type: 'keyUp', value },
    ]);
    await this.#act({ type: 'key', id: 'keyboard', actions });
  }

  /** Presses keys together: the last while all before it are held. */
  async chord(...keys) {
    const down = keys.map((value) => ({ type: 'keyDown', value }));
    const up = keys.toReversed().map((value) => ({ type: 'keyUp', value }));
    await this.#act({ type: 'key', id: 'keyboard', actions: [...down, ...up] });
  }

  /** Rests the pointer on the middle of an element. */
  async hoverOver(css) {
    const [x, y, height] = await this.run((css) => {
      const { x, y, width, height } = document.querySelector(css).getBoundingClientRect();
      return [x + width / 2, y + height / 2, height];
    }, css);
    // What comes to lie under a pointer at rest is not hovered over.
    await this.hover(x, y + height);
    await this.hover(x, y);
  }

  async hover(x, y) {
    await this.#pointer([{ type: 'pointerMove', duration: 0, x: Math.round(x), y: Math.round(y) }]);
  }

  /** Presses at the first point, moves through the others and lets go at the last. */
  async drag(...points) {
    const [first, ...rest] = points.map(([x, y]) => ({
      type: 'pointerMove',
      duration: 20,
      x: Math.round(x),
      y: Math.round(y),
    }));
    await this.#pointer([
      first,
      { type: 'pointerDown', button: 0 },
      ...rest,
      { type: 'pointerUp', button: 0 },
    ]);
  }

  /** A PNG of the page. */
  async screenshot() {
    return Buffer.from(await this.#get('screenshot'), 'base64');
  }

  async close() {
    await call('DELETE', this.#url, undefined, 20_000);
  }

  #pointer(actions) {
    return this.#act({
      type: 'pointer',
      id: 'mouse',
      parameters: { pointerType: 'mouse' },
      actions,
    });
  }

  #act(source) {
    return this.#post('actions', { actions: [source] });
  }

  #get(path) {
    return call('GET', `${this.#url}/${path}`);
  }

  #post(path, body) {
    return call('POST', `${this.#url}/${path}`, body);
  }
}

async function call(method, url, body, within = 60_000) {
  const response = await fetch(url, {
    method,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: { 'content-type': 'application/json; charset=utf-8' },
    signal: AbortSignal.timeout(within),
  });
  const { value } = await response.json();
  if (!response.ok) throw new WebDriverError(value.error, value.message);
  return value;
}
