import type { RawItem } from './geometry';

/** What of a PDF.js annotation carries text. */
export interface RawAnnotation {
  subtype?: string;
  fieldType?: string;
  fieldValue?: unknown;
  checkBox?: boolean;
  radioButton?: boolean;
  exportValue?: string;
  buttonValue?: string;
  hidden?: boolean;
  password?: boolean;
  rect?: number[];
  contentsObj?: { str?: string };
  options?: { exportValue?: string; displayValue?: string }[];
}

const FIELD_SIZE = 10;

/** Values typed into a form, placed where the form shows them, so that they follow their labels. */
export function fieldItems(annotations: RawAnnotation[]): RawItem[] {
  return annotations.flatMap((annotation) => {
    const [x0, y0, x1, y1] = annotation.rect ?? [];
    if (annotation.subtype !== 'Widget' || annotation.hidden) return [];
    if (x0 === undefined || y0 === undefined || x1 === undefined || y1 === undefined) return [];
    const lines = fieldText(annotation).split(/\r\n|\r|\n/);
    const size = Math.min(FIELD_SIZE, Math.abs(y1 - y0));
    // One line stands in the middle of its field, several begin at its top.
    const first = lines.length === 1 ? (y0 + y1) / 2 - 0.35 * size : Math.max(y0, y1) - size;
    return lines.map((str, i) => ({
      str,
      dir: 'ltr',
      transform: [size, 0, 0, size, Math.min(x0, x1), first - i * size * 1.2],
      width: Math.min(Math.abs(x1 - x0), str.length * size * 0.5),
      height: size,
    }));
  });
}

function fieldText(field: RawAnnotation): string {
  if (field.checkBox || field.radioButton) {
    const on = field.checkBox ? field.exportValue : field.buttonValue;
    return field.fieldValue === on && on !== undefined ? '[x]' : '[ ]';
  }
  if (field.password || field.fieldType === 'Sig') return '';
  const values = Array.isArray(field.fieldValue) ? field.fieldValue : [field.fieldValue];
  return values
    .filter((value): value is string => typeof value === 'string')
    .map((value) => field.options?.find((o) => o.exportValue === value)?.displayValue ?? value)
    .join(', ');
}

/** What readers wrote onto the page: notes, comments on marked text, free text. */
export function notes(annotations: RawAnnotation[]): string[] {
  return annotations
    .filter((a) => a.subtype !== 'Widget' && a.subtype !== 'Link' && a.subtype !== 'Popup')
    .map((a) => a.contentsObj?.str?.trim() ?? '')
    .filter((text) => text !== '');
}
