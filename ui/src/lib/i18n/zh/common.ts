import type { Catalogue } from '..';

export const common: Catalogue['common'] = {
  cancel: '取消',
  close: '关闭',
  copy: '复制',
  copied: '已复制',
  reset: '恢复默认值',
  unknown: '未知',
  listSeparator: '、',
  seconds: (n) => `${n} 秒`,
  minutes: (n) => `${n} 分钟`,
  minutesSeconds: (minutes, seconds) => `${minutes} 分 ${seconds} 秒`,
  hoursMinutes: (hours, minutes) => `${hours} 小时 ${minutes} 分`,
  speed: (n) => `${n} tok/s`,
  perSecond: (bytes) => `${bytes}/秒`,
  timeLeft: (duration) => `剩余 ${duration}`,
  of: (part, all) => `${part} / ${all}`,
};
