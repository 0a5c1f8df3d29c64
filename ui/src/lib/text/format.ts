/** What is shown in place of a figure that could not be read. */
export const UNKNOWN = 'unknown';

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

/** `3,120` */
export function count(n: number): string {
  return whole.format(n);
}

/** `840`, `3.2K`, `128K`, `1.2M` */
export function short(n: number): string {
  if (n < 1000) return whole.format(n);
  const [value, unit] = n < 999_500 ? [n / 1000, 'K'] : [n / 1_000_000, 'M'];
  return `${value < 99.95 ? value.toFixed(1) : value.toFixed(0)}${unit}`;
}

/** `3.2K / 8.2K (39%)` */
export function contextShare(used: number, total: number): string {
  return `${short(used)} / ${short(total)} (${percent(total > 0 ? used / total : 0)})`;
}

/** `39%`; never `0%` for something or `100%` for less than all. */
export function percent(share: number): string {
  if (!Number.isFinite(share)) return UNKNOWN;
  const rounded = Math.round(share * 100);
  if (rounded === 0 && share > 0) return '<1%';
  if (rounded === 100 && share < 1) return '99%';
  return `${rounded}%`;
}

/** `512 B`, `22.5 MiB`, `4.1 GiB` */
export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return UNKNOWN;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = n;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

/** `1.2` from bytes, in GiB, for two figures that share one unit. */
export function gib(n: number | null): string {
  return n === null || !Number.isFinite(n) ? UNKNOWN : (n / 2 ** 30).toFixed(1);
}

/** `8 s`, `1 min 20 s`, `2 h 5 min` */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return s % 60 === 0 ? `${s / 60} min` : `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

/** `12.4 tok/s` */
export function speed(tokS: number): string {
  return `${tokS < 100 ? tokS.toFixed(1) : tokS.toFixed(0)} tok/s`;
}

/** `1 page`, `12 pages` */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** `Today`, `Yesterday`, `Last 7 days`, `Earlier`, for headings of the chat list. */
export function age(ms: number, now: number): string {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (ms >= midnight) return 'Today';
  if (ms >= midnight - 86_400_000) return 'Yesterday';
  if (ms >= midnight - 6 * 86_400_000) return 'Last 7 days';
  return 'Earlier';
}
