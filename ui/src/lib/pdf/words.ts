/**
 * Compatibility forms that fonts and old encodings leave behind: ligatures, Arabic presentation
 * forms, half-width katakana, Kangxi radicals. Superscripts and fractions are *not* among them: NFKC
 * over everything would turn 10² into 102.
 */
const PRESENTATION =
  /[\u2e80-\u2fdf\uf900-\ufaff\ufb00-\ufdff\ufe30-\ufe4f\ufe70-\ufeff\uff01-\uff5e\uff61-\uffdc]+/g;

/** NFKC where it restores letters, NFC elsewhere; drops what has no meaning outside the page. */
export function normalize(text: string): string {
  return text
    .replace(PRESENTATION, (run) => run.normalize('NFKC'))
    .normalize('NFC')
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f\ufeff\ufffe\uffff]/g, '');
}

const BROKEN = /(\p{L}{2,})[-\u00ad\u2010]$/u;
const CONTINUED = /^(\p{Ll}[\p{L}\p{M}'’]*[^\s\p{L}]*)\s*(.*)$/su;

/** Joins words that were broken with a hyphen at the end of a line. */
export function joinBrokenWords(lines: string[]): string[] {
  const out: string[] = [];
  for (const line of lines) {
    const before = out.at(-1);
    const rest = before !== undefined && BROKEN.test(before) ? CONTINUED.exec(line) : null;
    if (before === undefined || rest === null) {
      out.push(line);
      continue;
    }
    out[out.length - 1] = before.slice(0, -1) + (rest[1] ?? '');
    if (rest[2]) out.push(rest[2]);
  }
  return out.map((line) => line.replaceAll('\u00ad', ''));
}
