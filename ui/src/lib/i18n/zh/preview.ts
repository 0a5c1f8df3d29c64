import type { Catalogue } from '..';
import { numbersOf } from '../numbers';

const { count } = numbersOf('zh');

export const preview: Catalogue['preview'] = {
  label: (name) => `文档 ${name}`,
  open: (name) => `在对话旁显示“${name}”`,
  pages: '页面',
  page: (page) => `第 ${count(page)} 页`,
  pageField: '页码',
  ofPages: (n) => `/ ${count(n)}`,
  smaller: '缩小',
  larger: '放大',
  shade: '按模型保留的内容为文字着色',
  shadeThread: '为对话文字着色',
  close: '关闭文档',
  closeTitle: '关闭 (Esc)',
  loading: '正在打开文档',
  password: '此 PDF 的密码',
  wrongPassword: '密码错误，请重试。',
  unlock: '打开',
  notInMemory: '这个对话现在不在内存中；下一个问题会重新读取它。',
  pageFailed: '此页已损坏，无法显示。',
  pasted: (opening) => `粘贴：${opening}`,
  insert: '改为插入文字',
  insertNamed: (name) => `将“${name}”作为文字插入`,
  pins: {
    title: '保留在记忆中',
    keep: '保留在记忆中',
    keepTitle: '永不淘汰这段文字 (Ctrl+Shift+P)',
    unpin: '不再保留',
    unpinNamed: (name) => `不再保留“${name}”中的这段文字`,
    show: '显示它所在的位置',
    tokens: (n) => `${count(n)} 个 token`,
  },
  layers: {
    title: '按层查看',
    none: '尚未读取任何内容。',
    says: '每一行是模型的一层，第一层在最上方；颜色越鲜明，该层保留得越多。',
    tip: (layer, name, token, share) =>
      `第 ${count(layer)} 层 · ${name}，第 ${token} 个 token · 保留 ${share}`,
    summary: (layers, least, leastShare, most, mostShare) =>
      `共 ${count(layers)} 层。第 ${count(least)} 层保留最少（${leastShare}），第 ${count(most)} 层最多（${mostShare}）。`,
  },
};
