import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';

/** Everything that an answer could fetch with, or run. */
const answer = (to) => `Here you are.

![pixel](${to}/markdown.png) ![ref][p]

<img src="${to}/img.png"><img src=x onerror="fetch('${to}/handler')">
<script src="${to}/script.js"></script><script>fetch('${to}/inline')</script>
<iframe src="${to}/frame"></iframe><object data="${to}/object"></object>
<link rel="stylesheet" href="${to}/sheet.css"><style>@import "${to}/import.css"; body { background: url(${to}/style.png) }</style>
<div style="background: url(${to}/attribute.png)">styled</div>
<video poster="${to}/poster.png" src="${to}/video.mp4"></video>
<svg onload="fetch('${to}/svg')"><image href="${to}/image.png"/></svg>
<meta http-equiv="refresh" content="0;url=${to}/refresh"><base href="${to}/">
<form action="${to}/form"><button>send</button></form>

[run](javascript:fetch('${to}/link')) [file](file:///etc/passwd) [page](${to}/page)

[p]: ${to}/reference.png

The end.`;

story('a hostile answer, in the real window', (step, on) => {
  const hits = [];
  const server = http.createServer((request, response) => {
    hits.push(request.url);
    response.writeHead(200, { 'access-control-allow-origin': '*' }).end();
  });
  let to;

  step('is shown as text, with a link in place of a picture', async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    server.unref();
    to = `http://127.0.0.1:${server.address().port}`;
    assert.equal((await fetch(`${to}/check`)).status, 200);
    assert.deepEqual(hits.splice(0), ['/check'], 'the server hears what is asked of it');

    insertChat(path.join(on.desktop.data, 'chats.db'), answer(to));
    await on.window.session.run(() => location.reload());
    await until('the chat is listed', () =>
      on.window.session.run(() => {
        const chat = document.querySelector('[title="Hostile"]');
        chat?.click();
        return chat !== null;
      }),
    );
    await until('the answer is shown', async () => (await on.window.answer()).text.endsWith('The end.'));
    const links = await on.window.session.run(() =>
      [...document.querySelectorAll('[data-testid="assistant-message"] a')].map((a) =>
        a.getAttribute('href'),
      ),
    );
    assert.ok(links.includes(`${to}/markdown.png`) && links.includes(`${to}/page`));
    assert.ok(links.every((link) => link === null || link.startsWith('http://')));
  });

  step('fetches nothing', async () => {
    // Long enough for whatever was going to load.
    await pause(1500);
    assert.deepEqual(hits, []);
  });

  step('could not fetch anything either if it got past the sanitiser', async () => {
    const tried = await on.window.session.run(async (to) => {
      const outcome = {};
      outcome.fetch = await fetch(`${to}/fetch`).then(
        () => 'fetched',
        () => 'refused',
      );
      const loads = (element) =>
        new Promise((resolve) => {
          element.onload = () => resolve('loaded');
          element.onerror = () => resolve('refused');
          setTimeout(() => resolve('nothing'), 1000);
          document.body.append(element);
        });
      const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
      outcome.image = await loads(make('img', { src: `${to}/img` }));
      outcome.script = await loads(make('script', { src: `${to}/script` }));
      outcome.sheet = await loads(make('link', { rel: 'stylesheet', href: `${to}/sheet` }));
      outcome.frame = await loads(make('iframe', { src: `${to}/frame` }));
      window.ran = false;
      document.body.append(make('script', { textContent: 'window.ran = true' }));
      const button = make('button', {});
      button.setAttribute('onclick', 'window.ran = true');
      document.body.append(button);
      button.click();
      outcome.inline = window.ran ? 'ran' : 'refused';
      try {
        outcome.socket = new WebSocket(to.replace('http', 'ws')) && 'tried';
      } catch {
        outcome.socket = 'refused';
      }
      navigator.sendBeacon?.(`${to}/beacon`, 'x');
      outcome.opened = window.open(`${to}/open`) === null ? 'refused' : 'opened';
      location.assign(`${to}/navigate`);
      const form = make('form', { action: `${to}/form`, method: 'post' });
      document.body.append(form);
      form.submit();
      return outcome;
    }, to);
    await pause(1000);
    assert.deepEqual(hits, []);
    const { fetch, image, script, inline, opened } = tried;
    assert.deepEqual(
      { fetch, image, script, inline, opened },
      { fetch: 'refused', image: 'refused', script: 'refused', inline: 'refused', opened: 'refused' },
    );
    assert.ok(await on.window.has('composer'), 'the window is still our page');
  });

  step('could not run a program, read a file or open more than a web page', async () => {
    const invoke = (command, args) =>
      on.window.session.run(
        (command, args) =>
          window.__TAURI_INTERNALS__.invoke(command, args).then(
            () => 'done',
            (error) => error.code ?? 'refused',
          ),
        command,
        args,
      );
    const url = 'file:///etc/passwd';
    assert.equal(await invoke('open_link', { url }), 'link_kind');
    assert.equal(await invoke('open_link', { url: 'javascript:1' }), 'link_kind');
    assert.equal(await invoke('read_file', { path: '/etc/passwd' }), 'file_kind');
    for (const command of [
      'plugin:opener|open_url',
      'plugin:opener|open_path',
      'plugin:shell|execute',
      'plugin:shell|open',
      'plugin:fs|read_file',
      'plugin:dialog|open',
      'plugin:event|emit',
      'plugin:webview|create_webview_window',
      'plugin:window|create',
    ]) {
      assert.equal(await invoke(command, { url, path: url }), 'refused', command);
    }
  });
});

function insertChat(file, text) {
  const code = [
    'import sqlite3, sys, time',
    'db = sqlite3.connect(sys.argv[1])',
    'now = int(time.time() * 1000)',
    'db.execute("INSERT INTO chats (id, title, created_ms, updated_ms) VALUES (?, ?, ?, ?)", ("hostile", "Hostile", now, now))',
    'add = "INSERT INTO messages (chat_id, parent_id, role, text, finish, created_ms) VALUES (?, ?, ?, ?, ?, ?)"',
    'asked = db.execute(add, ("hostile", None, "user", "Show me", None, now)).lastrowid',
    'answer = db.execute(add, ("hostile", asked, "assistant", sys.argv[2], "eos", now)).lastrowid',
    'db.execute("UPDATE chats SET leaf_id = ? WHERE id = ?", (answer, "hostile"))',
    'db.commit()',
  ].join('\n');
  execFileSync('python3', ['-c', code, file, text]);
}
