import type { Catalogue } from '..';

export const shortcuts: Catalogue['shortcuts'] = {
  title: '键盘快捷键',
  everywhere: '任何位置',
  question: '输入问题时',
  list: '在对话列表中',
  newChat: '新对话',
  search: '搜索对话',
  sidebar: '显示或隐藏对话列表',
  inspector: '显示或隐藏记忆面板',
  settings: '设置',
  sheet: '本页',
  escape: '停止回答，或关闭打开的面板',
  send: '发送',
  newLine: '换行',
  rename: '重命名',
  delete: '删除',
};
