import { describe, expect, test, vi } from 'vitest';
import { age, bytes, contextShare, duration, gib, percent, short } from '../../src/lib/text/format';

describe('figures', () => {
  test('the context is shown as used, all and share', () => {
    expect(contextShare(3200, 8192)).toBe('3.2K / 8.2K (39%)');
    expect(contextShare(0, 8192)).toBe('0 / 8.2K (0%)');
    expect(contextShare(5, 0)).toBe('5 / 0 (0%)');
  });

  test('large counts stay short', () => {
    expect([short(840), short(131_072), short(999_999), short(1_250_000)]).toEqual([
      '840',
      '131K',
      '1.0M',
      '1.3M',
    ]);
  });

  test('what cannot be read is unknown, never NaN', () => {
    expect(bytes(null)).toBe('unknown');
    expect(bytes(Number.NaN)).toBe('unknown');
    expect(gib(null)).toBe('unknown');
    expect(percent(Number.NaN)).toBe('unknown');
  });

  test('something is never shown as nothing, and most never as all', () => {
    expect(percent(0.001)).toBe('<1%');
    expect(percent(0.999)).toBe('99%');
    expect(percent(1)).toBe('100%');
  });

  test('bytes and times', () => {
    expect([bytes(512), bytes(23_592_960), bytes(4.1 * 2 ** 30)]).toEqual([
      '512 B',
      '22.5 MiB',
      '4.1 GiB',
    ]);
    expect([duration(8.4), duration(80), duration(7500)]).toEqual([
      '8 s',
      '1 min 20 s',
      '2 h 5 min',
    ]);
  });

  test('chats are grouped by calendar day', () => {
    const now = new Date(2026, 10, 29, 9, 0).getTime();
    expect(age(new Date(2026, 10, 29, 0, 5).getTime(), now)).toBe('Today');
    expect(age(new Date(2026, 10, 28, 23, 55).getTime(), now)).toBe('Yesterday');
    expect(age(new Date(2026, 10, 24).getTime(), now)).toBe('Last 7 days');
    expect(age(new Date(2026, 9, 24).getTime(), now)).toBe('Earlier');
    expect(age(new Date(2056, 9, 24).getTime(), now), 'a clock that was ahead').toBe('Today');
  });

  test('a day of 25 hours is one day', () => {
    vi.stubEnv('TZ', 'Europe/Berlin');
    const now = new Date(2026, 9, 26, 9, 0).getTime();
    expect(age(new Date(2026, 9, 25, 0, 30).getTime(), now)).toBe('Yesterday');
    vi.unstubAllEnvs();
  });
});
