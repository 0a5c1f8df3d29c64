import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { ROOT } from './lib/desktop.mjs';
import { story } from './lib/story.mjs';
import { until } from './lib/until.mjs';

const FOLDER = path.join(ROOT, 'tests/pdfs');
const pdf = (name) => path.join(FOLDER, `${name}.pdf`);
const LOCKED = 'encrypted-user-foo-owner-bar.pdf';
const SCAN = 'scan-image-only.pdf';

story('the PDFs that break extractors, in the real window', (step, on) => {
  let chips;
  const chip = (name) => chips.find((c) => c.name === name);

  step('takes all eleven in one drop', async () => {
    const files = fs.readdirSync(FOLDER).filter((name) => name.endsWith('.pdf'));
    assert.equal(files.length, 11);
    chips = await on.window.attach(...files.map((name) => path.join(FOLDER, name)));
    assert.deepEqual(chips.map((c) => c.name).sort(), files.sort());
  });

  step(
    'asks for a password, says that a wrong one is wrong, and opens with the right one',
    async () => {
      assert.ok(chip(LOCKED).locked);
      assert.equal(chip(LOCKED).wrongPassword, null);
      assert.equal(chips.filter((c) => c.locked).length, 1);
      await on.window.unlock('baz');
      chips = await until('the wrong password is said to be wrong', async () => {
        const now = await on.window.chips();
        return now.some((c) => c.wrongPassword) && now;
      });
      assert.equal(chip(LOCKED).wrongPassword, 'That password is wrong. Try another one.');
      await on.window.unlock('foo');
      chips = await until('the document is open', async () => {
        const now = await on.window.chips();
        return now.every((c) => ['ready', 'failed'].includes(c.phase)) && now;
      });
      assert.equal(chip(LOCKED).phase, 'ready');
    },
  );

  step('says of the scan that its page is an image, and loses no other document', async () => {
    assert.equal(chip(SCAN).phase, 'failed');
    assert.match(chip(SCAN).error, /^Page 1 is an image without text\./);
    for (const { name, phase, tokens } of chips) {
      if (name === SCAN) continue;
      assert.equal(phase, 'ready', name);
      assert.ok(tokens > 0, name);
    }
  });

  step(
    'has a sentence of its own for a damaged file and for one that it does not read',
    async () => {
      const damaged = path.join(on.desktop.data, 'damaged.pdf');
      fs.writeFileSync(damaged, fs.readFileSync(pdf('ligatures')).subarray(0, 900));
      const letter = path.join(on.desktop.data, 'letter.docx');
      fs.writeFileSync(letter, 'PK');
      chips = await on.window.attach(damaged, letter);
      assert.equal(
        chip('damaged.pdf').error,
        'This file is damaged or is not a PDF, so it cannot be read.',
      );
      assert.match(chip('letter.docx').error, /^Cistern reads PDF, \.txt and \.md files\./);
    },
  );

  step('has read what tests/pdfs/README.md says is right', async () => {
    await on.window.ask('What do these documents have in common?');
    // All of it would take minutes to answer, and the text is in the chat already.
    await on.window.click('stop');
    assert.ok((await on.window.answered()).stopped);
    const rows = on.desktop.query(
      'SELECT name, text FROM documents JOIN pages ON document_id = documents.id ORDER BY documents.id, number',
    );
    const pages = (name) => rows.filter((row) => row.name === `${name}.pdf`).map((row) => row.text);
    const text = (name) => pages(name).join('\n');
    const flat = (name) => text(name).replace(/\s+/g, ' ');
    const inOrder = (name, ...parts) => {
      let from = 0;
      for (const part of parts) {
        const at = flat(name).indexOf(part, from);
        assert.ok(at >= 0, `${name}: no “${part}” after position ${from} of:\n${text(name)}`);
        from = at + part.length;
      }
    };

    assert.equal(
      new Set(rows.map((row) => row.name)).size,
      10,
      'the scan and the refused files were not sent',
    );
    assert.equal(pages('twocol-lorem').length, 3);
    inOrder(
      'twocol-lorem',
      ...['two columns filled', 'consectetuer adipiscing elit', 'Nam dui ligula, fringilla a'],
      // The foot of the left column, the head of the right one, and the next page.
      ...['Vivamus viverra fermentum felis', 'Phasellus adipiscing semper', 'Maecenas lacinia'],
      ...['Quisque egestas wisi', 'Aliquam dolor odio', 'luctus et ultrices posuere'],
    );
    inOrder('cjk-japanese-90ms-rksj', 'Hello ASCII');
    assert.match(text('cjk-japanese-90ms-rksj'), /日本語テスト/);
    inOrder(
      'cjk-vertical-no-tounicode',
      'わたくしといふ現象は',
      '假定された有機交流電燈の',
      'ひとつの青い照明です',
    );
    assert.match(text('rotated90-table'), /^Alabama 18,870 23,022 22,650 859\b/m);
    assert.match(text('rotated90-table'), /^Wyoming\b/m);
    inOrder('encrypted-empty-password-aes256r6', 'pdf encryption test');
    inOrder('encrypted-user-foo-owner-bar', 'pdf encryption test');
    inOrder('broken-xref', 'Issue 9105');
    inOrder('form-field-values', 'Single line, unlimited length', 'Lorem ipsum dolor sit amet');
    inOrder('form-field-values', 'Single line, length 10', 'Lorem ipsu');
    inOrder('form-field-values', 'Single line, combs', 'abcdefghijklmnopqrstuvwxyz');
    assert.match(text('rtl-arabic-latin'), /تحسين.*البرمجة بلغة R و Python/);
    assert.match(
      text('ligatures').normalize('NFKC').replace(/\s/g, ''),
      /abcdeffffiflffifflststghijklmno/,
    );
  });
});
