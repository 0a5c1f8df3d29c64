import DOMPurify, { type Config } from 'dompurify';
import { Marked, type Tokens } from 'marked';

/** A top-level block of Markdown as safe HTML. */
export interface Block {
  raw: string;
  html: string;
}

const marked = new Marked({
  gfm: true,
  renderer: {
    code({ text, lang }: Tokens.Code) {
      const name = escape((lang ?? '').split(/\s/)[0] ?? '');
      return (
        `<figure class="code"><figcaption><span>${name}</span>` +
        `<button type="button" data-copy>Copy</button></figcaption>` +
        `<pre><code>${escape(text)}\n</code></pre></figure>`
      );
    },
    // Nothing is fetched on behalf of an answer: a picture is named, not shown.
    image({ text, href }: Tokens.Image) {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
    table(token: Tokens.Table) {
      const cells = (row: Tokens.TableCell[], tag: string) =>
        row
          .map((cell) => {
            const align = cell.align ? ` align="${cell.align}"` : '';
            return `<${tag}${align}>${this.parser.parseInline(cell.tokens)}</${tag}>`;
          })
          .join('');
      const body = token.rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('');
      return `<div class="table"><table><thead><tr>${cells(token.header, 'th')}</tr></thead><tbody>${body}</tbody></table></div>`;
    },
  },
});

const ALLOWED: Config = {
  ALLOWED_TAGS: (
    'p br hr h1 h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li a sub sup kbd mark ' +
    'table thead tbody tr th td div figure figcaption span button input'
  ).split(' '),
  ALLOWED_ATTR: ['href', 'align', 'start', 'class', 'type', 'data-copy', 'checked', 'disabled'],
  // Applies to every attribute but these.
  ALLOWED_URI_REGEXP: /^https?:/i,
  ADD_URI_SAFE_ATTR: ['align', 'start', 'type', 'checked', 'disabled'],
};

DOMPurify.addHook('uponSanitizeElement', (node, { tagName }) => {
  // Task lists have checkboxes; no other field belongs into an answer.
  if (tagName === 'input' && node instanceof Element && node.getAttribute('type') !== 'checkbox') {
    node.remove();
  }
});

/** Turns Markdown into blocks. While an answer grows only its last block changes. */
export function renderBlocks(markdown: string, cache = new Map<string, string>()): Block[] {
  const tokens = marked.lexer(markdown);
  return tokens
    .filter((token) => token.type !== 'space' && token.type !== 'def')
    .map((token) => {
      let html = cache.get(token.raw);
      if (html === undefined) {
        const one = Object.assign([token], { links: tokens.links });
        html = DOMPurify.sanitize(marked.parser(one), ALLOWED);
        cache.set(token.raw, html);
      }
      return { raw: token.raw, html };
    });
}

function escape(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}
