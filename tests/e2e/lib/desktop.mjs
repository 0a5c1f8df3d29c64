// A display of our own with Cistern's window on it, and the certainty that nothing is left running.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Session } from './webdriver.mjs';
import { until } from './until.mjs';

export const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

const PROFILE = process.env.CISTERN_PROFILE ?? 'debug';
const PROGRAM = path.join(ROOT, 'target', PROFILE, 'cistern-desktop');
const WORKER = path.join(ROOT, 'target', PROFILE, 'cistern');
export const STARTER = path.join(ROOT, 'models/SmolLM2-135M-Instruct.Q4_1.gguf');

/** Wider than the window, so that there is a place to drag from. */
const SCREEN = { width: 1600, height: 900 };

export class Desktop {
  /** Chats and settings; gone with the desktop. */
  data = fs.mkdtempSync(path.join(os.tmpdir(), 'cistern-e2e-'));
  #own = [];
  #display = '';
  #driver;
  #env = {};
  #program = PROGRAM;
  #onExit = () => this.#kill();

  /**
   * `env` is what the programs get on top of it; `installed` starts copies of them from a folder of their own, as a
   * package would, so that they know nothing of the models in this checkout.
   */
  static async start({ env = {}, installed = false } = {}) {
    for (const [file, how] of [
      [PROGRAM, 'cargo build -p cistern-cli -p cistern-desktop'],
      [WORKER, 'cargo build -p cistern-cli'],
      [STARTER, 'scripts/starter-model'],
    ]) {
      if (!fs.existsSync(file)) throw new Error(`${file} is missing: run \`${how}\` first.`);
    }
    const desktop = new Desktop();
    desktop.#env = env;
    if (installed) desktop.#install();
    // Also when a test is interrupted or throws where nobody listens.
    process.once('exit', desktop.#onExit);
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'])
      process.once(signal, () => process.exit(1));
    try {
      desktop.#display = await desktop.#startDisplay();
    } catch (error) {
      await desktop.close();
      throw error;
    }
    return desktop;
  }

  /** Opens the window and waits for its page. */
  async open() {
    const port = await freePort();
    const driver = this.#spawn('WebKitWebDriver', [`--port=${port}`], {
      TAURI_WEBVIEW_AUTOMATION: 'true',
    });
    this.#driver = driver;
    const base = `http://127.0.0.1:${port}`;
    await until('the driver listens', () => fetch(`${base}/status`).then((r) => r.ok), 30_000);
    return Session.start(base, this.#program);
  }

  /** Starts the program once more, with these arguments, and waits for its end. */
  startAgain(...args) {
    return this.exec(this.#program, ...args);
  }

  #install() {
    const folder = path.join(this.data, 'bin');
    fs.mkdirSync(folder);
    for (const program of [PROGRAM, WORKER]) {
      fs.copyFileSync(
        program,
        path.join(folder, path.basename(program)),
        fs.constants.COPYFILE_FICLONE,
      );
    }
    this.#program = path.join(folder, path.basename(PROGRAM));
  }

  /** Ends what `open` started, and waits until it is gone. The driver gives the program no time to tidy up. */
  async shut(session) {
    await session?.close().catch(() => {});
    await this.#ended();
  }

  /** Closes the window as a person does, and waits until everything is gone. */
  async quit() {
    const script = path.join(ROOT, 'tests/e2e/lib/close.py');
    const id = '$(xdotool search --onlyvisible --name "^Cistern$" | tail -1)';
    await this.exec('sh', '-c', `python3 '${script}' ${id}`);
    await this.#ended();
  }

  /** Ends the window as a system does that shuts down. */
  async terminate() {
    const { pid } = this.processes().find(({ command }) => /-desktop$/.test(command[0]));
    process.kill(pid, 'SIGTERM');
    await this.#ended();
  }

  async #ended() {
    await until(
      'window and worker have ended',
      () => {
        const left = this.processes();
        if (left.length > 0) throw new Error(left.map((p) => p.command.join(' ')).join('; '));
        return true;
      },
      20_000,
    );
    // Not before: the driver is still closing the window when it has answered.
    this.#driver?.kill();
  }

  /** Processes of Cistern on this desktop, with their command lines. */
  processes() {
    return family(this.data).filter(({ command }) => /\/cistern(-desktop)?$/.test(command[0]));
  }

  /** Bytes of a process that are in memory. */
  resident(pid) {
    const status = fs.readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)[1]) * 1024;
  }

  /** The process that computes. */
  worker() {
    return this.processes().find(({ command }) => command[1] === 'worker')?.pid;
  }

  /** Runs a program on this display to its end. */
  async exec(program, ...args) {
    const child = this.#spawn(program, args, {}, ['ignore', 'inherit', 'inherit']);
    const [code] = await once(child, 'exit');
    if (code !== 0) throw new Error(`${program} ended with ${code}`);
  }

  /** Names a file in one of the system's dialogs, and agrees. */
  async answerDialog(title, file) {
    const search = ['search', '--sync', '--onlyvisible', '--name', `^${title}$`];
    await this.exec('xdotool', ...search, 'windowfocus', '--sync');
    await this.exec('xdotool', 'key', 'ctrl+a');
    await this.exec('xdotool', 'type', '--delay', '4', file);
    await this.exec('xdotool', 'key', 'Return');
  }

  /** Lets go of files over the window, from a program that offers them the way a file manager does. */
  drop(paths, to) {
    const script = path.join(ROOT, 'tests/e2e/lib/drop.py');
    return this.exec(
      '/usr/bin/python3',
      script,
      `${SCREEN.width - 160}`,
      `${to[0]}`,
      `${to[1]}`,
      ...paths,
    );
  }

  /** Rows of a query on the chats. */
  query(sql) {
    const code = [
      'import json, sqlite3, sys',
      'db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)',
      'db.row_factory = sqlite3.Row',
      'print(json.dumps([dict(row) for row in db.execute(sys.argv[2])]))',
    ].join('\n');
    const file = path.join(this.data, 'chats.db');
    return JSON.parse(execFileSync('python3', ['-c', code, file, sql], { encoding: 'utf8' }));
  }

  /** Fills the database, which no window may hold open, with a chat of that many questions and a huge answer. */
  fillLongChat(turns) {
    const script = path.join(ROOT, 'tests/e2e/lib/long-chat.py');
    execFileSync('python3', [script, path.join(this.data, 'chats.db'), `${turns}`]);
  }

  /** When the window's process was started, in ms since 1970. */
  windowStartedMs() {
    const { pid } = this.processes().find(({ command }) => /cistern-desktop$/.test(command[0]));
    const ticks = Number(
      fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ')[19],
    );
    const uptime = Number(fs.readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
    return Date.now() - (uptime - ticks / 100) * 1000;
  }

  /** Bytes of the window by process: its own and those that draw it; a page that several share is counted by share. */
  windowMemory() {
    return family(this.data)
      .filter(({ command }) => /cistern-desktop$|WebKit(Web|Network)Process/.test(command[0]))
      .map(({ pid, command }) => {
        const pss = /^Pss:\s+(\d+) kB/m.exec(fs.readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'));
        return { name: command[0].split('/').at(-1), bytes: Number(pss[1]) * 1024 };
      });
  }

  async close(session) {
    await session?.close().catch(() => {});
    this.#kill();
    process.off('exit', this.#onExit);
  }

  async #startDisplay() {
    const screen = `${SCREEN.width}x${SCREEN.height}x24`;
    const args = ['-displayfd', '3', '-screen', '0', screen, '-nolisten', 'tcp', '-noreset'];
    const child = this.#spawn('Xvfb', args, {}, ['ignore', 'ignore', 'ignore', 'pipe']);
    const [number] = await Promise.race([
      once(child.stdio[3], 'data'),
      once(child, 'exit').then(([code]) => {
        throw new Error(`Xvfb ended with ${code} before there was a display`);
      }),
    ]);
    return `:${String(number).trim()}`;
  }

  #spawn(program, args, env = {}, stdio = 'ignore') {
    const folder = (name) => path.join(this.data, name);
    // The death signal ends them even where this process is killed; the window goes with its display.
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', program, ...args], {
      stdio,
      env: {
        ...process.env,
        ...(this.#display && { DISPLAY: this.#display }),
        GDK_BACKEND: 'x11',
        NO_AT_BRIDGE: '1',
        // Nothing of the person who runs the tests is read or changed.
        CISTERN_DATA: this.data,
        XDG_DATA_HOME: folder('xdg/data'),
        XDG_CACHE_HOME: folder('xdg/cache'),
        XDG_CONFIG_HOME: folder('xdg/config'),
        ...this.#env,
        ...env,
      },
    });
    child.on('error', (error) =>
      console.error(`${program} could not be started: ${error.message}`),
    );
    this.#own.push(child);
    return child;
  }

  #kill() {
    for (const child of this.#own) child.kill('SIGKILL');
    for (const { pid } of family(this.data)) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It ended by itself.
      }
    }
    fs.rmSync(this.data, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

/** Processes that were started with this data folder, however they came about. */
function family(data) {
  const mark = `\0CISTERN_DATA=${data}\0`;
  const found = [];
  for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (!`\0${fs.readFileSync(`/proc/${pid}/environ`, 'latin1')}\0`.includes(mark)) continue;
      const command = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      if (command[0]) found.push({ pid: Number(pid), command });
    } catch {
      // Another person's process, or one that has just ended.
    }
  }
  return found;
}

async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}
