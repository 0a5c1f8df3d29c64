import type { TokenizerAndRendererExtension, Tokens } from 'marked';
import { escape } from './escape';

interface MathToken extends Tokens.Generic {
  tex: string;
}

/** A formula with its source as text; `enrich` sets it. */
function render(token: Tokens.Generic, display: boolean): string {
  const { raw, tex } = token as MathToken;
  const [tag, mode] = display ? ['div', 'display'] : ['span', 'inline'];
  return `<${tag} class="math" data-math="${mode}" data-tex="${escape(tex)}">${escape(raw.trim())}</${tag}>`;
}

/** `$$ … $$` and `\[ … \]` on lines of their own. What is asked is where they end a paragraph, so not beyond it. */
const display: TokenizerAndRendererExtension = {
  name: 'displayMath',
  level: 'block',
  start: (src) => {
    const end = src.indexOf('\n\n');
    return /(?:^|\n) {0,3}(?:\$\$|\\\[)/.exec(end < 0 ? src : src.slice(0, end))?.index;
  },
  tokenizer(src) {
    const match =
      /^ {0,3}\$\$((?:[^$]|\\\$)+?)\$\$ *(?:\n|$)/.exec(src) ??
      /^ {0,3}\\\[([\s\S]+?)\\\] *(?:\n|$)/.exec(src);
    return match ? { type: 'displayMath', raw: match[0], tex: match[1]?.trim() ?? '' } : undefined;
  },
  renderer: (token) => render(token, true),
};

/** `\( … \)`, `$ … $` and, within a line, `$$ … $$`. A price is no formula: `$5 and $6` stays text. */
const inline: TokenizerAndRendererExtension = {
  name: 'inlineMath',
  level: 'inline',
  start: (src) => /\$|\\[([]/.exec(src)?.index,
  tokenizer(src) {
    const match =
      /^\\\(([\s\S]+?)\\\)/.exec(src) ??
      /^\\\[([\s\S]+?)\\\]/.exec(src) ??
      /^\$\$([^$\n]+?)\$\$/.exec(src) ??
      /^\$(?![\s$])((?:\\.|[^\\$\n`])*?(?:\\.|[^\\$\s`]))\$(?![\d$])/.exec(src);
    return match ? { type: 'inlineMath', raw: match[0], tex: match[1]?.trim() ?? '' } : undefined;
  },
  renderer: (token) => render(token, false),
};

export const mathExtensions = [display, inline];
