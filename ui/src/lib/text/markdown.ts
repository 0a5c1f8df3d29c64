import DOMPurify, { type Config } from 'dompurify';
import { Marked, type Token, type Tokens } from 'marked';
import { t } from '../i18n';
import { escape } from './escape';
import { mathExtensions } from './math';

/** A top-level block of Markdown as safe HTML, made when it is first asked for. */
export interface Block {
  raw: string;
  readonly html: string;
}

const marked = new Marked({
  gfm: true,
  renderer: {
    code({ text, lang }: Tokens.Code) {
      const name = escape((lang ?? '').split(/\s/)[0] ?? '');
      return (
        `<figure class="code"><figcaption><span>${name}</span>` +
        `<button type="button" data-copy>${escape(t.common.copy)}</button></figcaption>` +
        `<pre tabindex="0"><code${name && ` data-lang="${name}"`}>${escape(text)}\n</code></pre></figure>`
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
marked.use({ extensions: mathExtensions });

const ALLOWED: Config = {
  ALLOWED_TAGS: (
    'p br hr h1 h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li a sub sup kbd mark ' +
    'table thead tbody tr th td div figure figcaption span button input'
  ).split(' '),
  ALLOWED_ATTR:
    'href align start class type checked disabled tabindex data-copy data-lang data-math data-tex'.split(
      ' ',
    ),
  // Those of the list, and none that an answer makes up.
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  // Applies to every attribute but these.
  ALLOWED_URI_REGEXP: /^https?:\/\//i,
  ADD_URI_SAFE_ATTR:
    'align start class type checked disabled tabindex data-copy data-lang data-math data-tex'.split(
      ' ',
    ),
};

DOMPurify.addHook('uponSanitizeElement', (node, { tagName }) => {
  // Task lists have checkboxes; no other field belongs into an answer.
  if (tagName === 'input' && node instanceof Element && node.getAttribute('type') !== 'checkbox') {
    node.remove();
  }
});

/** Letters of a long text that are read at once. */
const PIECE = 4096;

const REFERENCE = /^ {0,3}\[[^\]\n]+\]:/m;

/** Turns a text into blocks. While it grows, only its end is read again, and only its last block rendered. */
export class Blocks {
  #text = '';
  #tokens: Token[] = [];
  readonly #cache = new Map<string, Block>();

  of(markdown: string): Block[] {
    this.#read(markdown.replace(/\r\n?/g, '\n'));
    return this.#tokens
      .filter((token) => token.type !== 'space' && token.type !== 'def')
      .map((token) => this.#block(token));
  }

  #read(text: string): void {
    // What a reference stands for may be said anywhere: then everything is read again.
    const references = REFERENCE.test(text);
    if (references) this.#cache.clear();
    const grew = !references && text.startsWith(this.#text);
    const tokens = grew ? settled(this.#tokens) : [];
    let from = lengthOf(tokens);
    // WebKit's time for a token grows with the text after it: a long text is read as if it came in piece by piece.
    for (let piece = references ? text.length : PIECE; from + piece < text.length;) {
      const done = settled(marked.lexer(text.slice(from, from + piece)));
      tokens.push(...done);
      from += lengthOf(done);
      piece = done.length > 0 ? PIECE : 2 * piece;
    }
    this.#tokens = [...tokens, ...marked.lexer(text.slice(from))];
    this.#text = text;
  }

  #block(token: Token): Block {
    const known = this.#cache.get(token.raw);
    if (known) return known;
    const block = new Lazy(token.raw, () => DOMPurify.sanitize(marked.parser([token]), ALLOWED));
    this.#cache.set(token.raw, block);
    return block;
  }
}

/** The blocks that nothing that follows can change: all but the last, and a list before it, which may yet go on. */
function settled(tokens: Token[]): Token[] {
  const lastOf = (some: Token[]) => some.findLastIndex((token) => token.type !== 'space');
  const rest = tokens.slice(0, Math.max(0, lastOf(tokens)));
  const before = lastOf(rest);
  return rest[before]?.type === 'list' ? rest.slice(0, before) : rest;
}

const lengthOf = (tokens: Token[]) => tokens.reduce((sum, { raw }) => sum + raw.length, 0);

class Lazy implements Block {
  #html: string | undefined;

  constructor(
    readonly raw: string,
    private readonly render: () => string,
  ) {}

  get html(): string {
    return (this.#html ??= this.render());
  }
}
