import { expect, test } from 'vitest';
import { fit } from '../../src/lib/models/fit';

const GiB = 2 ** 30;
const model = { fixed: 4 * GiB, per_token: 2 ** 17 };

test('weights, scratch and the entries of the budget are held against the room', () => {
  expect(fit(model, 8 * GiB, 8192, 131_072)).toEqual({
    needs: 5 * GiB,
    room: 8 * GiB,
    verdict: 'fits',
  });
  expect(fit(model, 5.5 * GiB, 8192, 131_072).verdict).toBe('tight');
  expect(fit(model, 4.9 * GiB, 8192, 131_072).verdict).toBe('too-big');
});

test('no more is counted than the trained context', () => {
  expect(fit(model, 8 * GiB, 1_000_000, 8192).needs).toBe(5 * GiB);
});

test('an automatic budget takes half of what the model leaves, within its bounds', () => {
  expect(fit(model, 8 * GiB, null, 131_072).needs).toBe(6 * GiB);
  expect(fit(model, 8 * GiB, null, 8192).needs).toBe(5 * GiB);
  const least = model.fixed + 256 * model.per_token;
  expect(fit(model, 2 * GiB, null, 8192)).toMatchObject({ needs: least, verdict: 'too-big' });
});

test('what cannot be known is unknown and never a wrong figure', () => {
  expect(fit(null, 8 * GiB, 1024, 8192)).toEqual({
    needs: null,
    room: 8 * GiB,
    verdict: 'unknown',
  });
  expect(fit(model, null, 1024, null)).toMatchObject({ room: null, verdict: 'unknown' });
  expect(fit(model, 0, 1024, null).verdict).toBe('unknown');
  expect(fit({ fixed: Number.NaN, per_token: 1 }, GiB, 1, 1)).toMatchObject({
    needs: null,
    verdict: 'unknown',
  });
});
