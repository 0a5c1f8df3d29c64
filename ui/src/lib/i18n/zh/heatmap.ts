import type { Catalogue } from '..';
import { numbersOf } from '../numbers';

const { count } = numbersOf('zh');

export const heatmap: Catalogue['heatmap'] = {
  title: '模型记得什么',
  kept: (share) => `保留 ${share}`,
  notInMemory: '这个对话现在不在内存中，下次提问时会重新读取。',
  restoring: '正在恢复模型记得的这个对话的内容…',
  empty: '提问之后，对话的每个 token 都会显示在这里：模型仍记得的较高，被淘汰的是平的。',
  tip: (n, state) => `第 ${count(n)} 个 token · ${state}`,
  states: {
    unread: '尚未读取',
    forgotten: '已遗忘',
    store: '只在后备存储中',
    kept: (share) => `保留 ${share}`,
    pinned: '已固定',
    recent: '最近',
  },
  legend: {
    kept: '保留（高度 = 比例）',
    store: '只在后备存储中',
    forgotten: '已遗忘',
    recent: '最近',
    pinned: '已固定',
    unread: '尚未读取',
  },
  summary: {
    none: '还没有上下文。',
    context: (n, share) => `上下文共 ${count(n)} 个 token，其中 ${share} 在热缓存中。`,
    store: (n) => `${count(n)} 个 token 只在后备存储中。`,
    forgotten: (n) => `${count(n)} 个 token 已遗忘。`,
    pinned: (n) => `${count(n)} 个 token 已固定。`,
    allKept: '没有内容被大量淘汰。',
    separator: '',
  },
  leftOut: {
    evicted: (names) => `目前大部分被淘汰：${names}。`,
    forgotten: (names) => `至少部分已遗忘：${names}。`,
    more: (names, n) => `${names}；另有 ${count(n)} 处`,
    separator: '；',
    allPages: '全部页',
    page: (page) => `第 ${page} 页`,
    pages: (first, last) => `第 ${first}–${last} 页`,
    somePages: (n, all) => `${count(all)} 页中的 ${count(n)} 页`,
  },
  names: {
    template: '对话模板',
    system: '系统提示',
    otherBranch: '另一个分支',
    document: '文档',
    question: (n) => `问题 ${n}`,
    answer: (n) => `回答 ${n}`,
    within: (name) => name,
    page: (document, page) => `${document}，第 ${page} 页`,
    shortPage: (page) => `第 ${page} 页`,
    shortPageOf: (document, page) => `${document} ${page}`,
    markPage: (page) => `${page}页`,
    markQuestion: (n) => `问${n}`,
    markAnswer: (n) => `答${n}`,
  },
};
