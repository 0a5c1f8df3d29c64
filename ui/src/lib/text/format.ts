import { t } from '../i18n';
import { locale } from '../i18n/language.svelte';

const formats = new Map<string, Intl.NumberFormat>();

/** A number with exactly so many digits after the point. */
export function fixed(n: number, digits: number): string {
  const key = `${locale()} ${digits}`;
  let format = formats.get(key);
  if (!format) {
    format = new Intl.NumberFormat(locale(), {
      minimumFractionDigits: digits,
      maximumFractionDigits: digits,
    });
    formats.set(key, format);
  }
  return format.format(n);
}

/** `3,120` */
export function count(n: number): string {
  return fixed(n, 0);
}

/** `840`, `3.2K`, `128K`, `1.2M` */
export function short(n: number): string {
  if (n < 1000) return count(n);
  const [value, unit] = n < 999_500 ? [n / 1000, 'K'] : [n / 1_000_000, 'M'];
  return `${fixed(value, value < 99.95 ? 1 : 0)}${unit}`;
}

/** `3.2K / 8.2K (39%)` */
export function contextShare(used: number, total: number): string {
  return `${short(used)} / ${short(total)} (${percent(total > 0 ? used / total : 0)})`;
}

/** `39%`; never `0%` for something or `100%` for less than all. */
export function percent(share: number): string {
  if (!Number.isFinite(share)) return t.common.unknown;
  const rounded = Math.round(share * 100);
  if (rounded === 0 && share > 0) return '<1%';
  if (rounded === 100 && share < 1) return '99%';
  return `${rounded}%`;
}

/** `512 B`, `22.5 MiB`, `4.1 GiB` */
export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return t.common.unknown;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = n;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${fixed(value, unit === 0 || value >= 100 ? 0 : 1)} ${units[unit]}`;
}

/** `1.2` from bytes, in GiB, for two figures that share one unit. */
export function gib(n: number | null): string {
  return n === null || !Number.isFinite(n) ? t.common.unknown : fixed(n / 2 ** 30, 1);
}

/** `8 s`, `1 min 20 s`, `2 h 5 min` */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return t.common.seconds(count(s));
  const minutes = Math.floor(s / 60);
  if (s < 3600)
    return s % 60 === 0 ? t.common.minutes(minutes) : t.common.minutesSeconds(minutes, s % 60);
  return t.common.hoursMinutes(Math.floor(minutes / 60), minutes % 60);
}

/** `12.4 tok/s` */
export function speed(tokS: number): string {
  return t.common.speed(fixed(tokS, tokS < 100 ? 1 : 0));
}

/** `Today`, `Yesterday`, `Last 7 days`, `Earlier`, for headings of the chat list. */
export function age(ms: number, now: number): string {
  // A day is 23 or 25 hours long when the clocks are changed.
  const daysAgo = (days: number) => {
    const date = new Date(now);
    return new Date(date.getFullYear(), date.getMonth(), date.getDate() - days).getTime();
  };
  if (ms >= daysAgo(0)) return t.chats.today;
  if (ms >= daysAgo(1)) return t.chats.yesterday;
  if (ms >= daysAgo(6)) return t.chats.lastWeek;
  return t.chats.earlier;
}
