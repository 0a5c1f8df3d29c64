import { t } from '../i18n';
import { diffAgainst, wordCount } from './diff';
import { figures } from './figures';
import { letter, title } from './columns';
import type { ColumnResult } from '../state/compare.svelte';

/** A comparison as a Markdown document. */
export function comparisonMarkdown(
  question: string,
  model: string,
  columns: ColumnResult[],
  base: number,
): string {
  const names = columns.map((column, i) => `${letter(i)}: ${title(column.options)}`);
  const rows = columns.map((column) => figures(column.cache, column.stats));
  const row = (cells: string[]) => `| ${cells.join(' | ')} |`;
  const cell = (value: string, note: string) => (note === '' ? value : `${value} (${note})`);
  const lines = [
    `# ${t.compare.markdown.title}`,
    '',
    ...quoted(question),
    '',
    t.compare.markdown.says(model),
    '',
    row(['', ...names]),
    row(['---', ...names.map(() => '---:')]),
    ...(rows[0] ?? []).map(({ id }, r) =>
      row([
        t.compare.figure[id],
        ...rows.map((own) => cell(own[r]?.value ?? '', own[r]?.note ?? '')),
      ]),
    ),
  ];
  const against = columns[base]?.text ?? '';
  columns.forEach((column, i) => {
    lines.push('', `## ${names[i]}`, '');
    if (column.problem !== null) lines.push(`**${column.problem.message}**`, '');
    if (i !== base && column.text !== '' && against !== '') {
      lines.push(`*${differs(against, column.text, letter(base))}*`, '');
    }
    lines.push(column.text === '' ? t.compare.markdown.noAnswer : column.text.trim());
  });
  return `${lines.join('\n')}\n`;
}

/** One sentence on how an answer differs from another. */
export function differs(base: string, text: string, name: string): string {
  const { added, missing, sameUntil } = diffAgainst(base, text);
  if (added === 0 && missing === 0) return t.compare.same(name);
  return t.compare.differs(name, sameUntil + 1, added, wordCount(text), missing);
}

function quoted(text: string): string[] {
  return text.split('\n').map((line) => `> ${line}`);
}
