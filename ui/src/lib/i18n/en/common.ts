export const common = {
  cancel: 'Cancel',
  close: 'Close',
  copy: 'Copy',
  copied: 'Copied',
  reset: 'Reset to defaults',
  /** In place of a figure that could not be read. */
  unknown: 'unknown',
  listSeparator: ', ',
  seconds: (n: string) => `${n} s`,
  minutes: (n: number) => `${n} min`,
  minutesSeconds: (minutes: number, seconds: number) => `${minutes} min ${seconds} s`,
  hoursMinutes: (hours: number, minutes: number) => `${hours} h ${minutes} min`,
  speed: (n: string) => `${n} tok/s`,
  /** What a download does. */
  perSecond: (bytes: string) => `${bytes}/s`,
  timeLeft: (duration: string) => `${duration} left`,
  of: (part: string, all: string) => `${part} of ${all}`,
};
