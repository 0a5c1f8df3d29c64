import type { Catalogue } from '..';
import { numbersOf } from '../numbers';

const { count } = numbersOf('zh');

export const chats: Catalogue['chats'] = {
  count: (n) => `${count(n)} 个对话`,
  label: '对话',
  newChat: '新对话',
  newChatTitle: '新对话 (Ctrl+N)',
  empty: '对话保存在这里，只存在这台电脑上。',
  today: '今天',
  yesterday: '昨天',
  lastWeek: '最近 7 天',
  earlier: '更早',
  name: '对话名称',
  writing: '正在回答',
  pin: '置顶',
  unpin: '取消置顶',
  pinned: '已置顶',
  more: '更多',
  moreAbout: (title) => `“${title}”的更多操作`,
  menuRename: '重命名',
  menuDelete: '删除',
  exportMarkdown: '导出为 Markdown…',
  exportJson: '导出为 JSON…',
  exported: (path) => `已写入 ${path}。`,
  import: '导入对话',
  importTitle: '导入对话 (JSON)',
  search: {
    label: '搜索对话',
    placeholder: '搜索 (Ctrl+K)',
    clear: '清除搜索',
    clearTitle: '清除 (Esc)',
    nothing: '没有对话包含所有这些词。',
    more: (n) => `此对话中还有 ${count(n)} 处`,
  },
  delete: '删除 (Del)',
  deleteNamed: (title) => `删除“${title}”`,
  deleted: (title) => `已删除“${title}”。`,
  undo: '撤销',
};
