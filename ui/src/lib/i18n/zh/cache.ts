import type { Catalogue } from '..';

export const cache: Catalogue['cache'] = {
  preset: {
    title: '用途',
    what: '缓存为哪种用途设置',
    changed: '已更改',
    reset: '恢复',
    names: { conversation: '对话', document: '文档', code: '代码' },
    says: {
      conversation: '适合聊天：保留最新的一半，以及目前获得注意力最多的内容。',
      document: '适合就长文多次提问：保留任何问题都可能要看的内容。',
      code: '适合代码：预算的四分之三保留最后写下的内容。',
    },
  },
  advanced: {
    title: '高级',
    when: '此处的更改从下一个问题起生效。',
    reset: '恢复为该用途的设置',
    prefill: {
      title: '读取方式',
      says: '精确：逐层读取，全文可见；流式：边读边裁减。',
      names: { auto: '放得下则精确', exact: '精确', streaming: '流式' },
    },
    kv: {
      title: '条目精度',
      says: '条目以多高的精度保存：8 位占用的内存是 16 位的一半。',
      names: { f16: '16 位', q8_0: '8 位', f32: '32 位' },
    },
    fields: {
      sinks: {
        title: '最前 token',
        says: '最开头的这么多个 token 始终保留；模型依赖它们。',
        empty: '',
      },
      recent: {
        title: '最新 token',
        says: '最新的这么多个 token 始终保留，至少 16 个。',
        empty: '按比例',
      },
      recent_share: {
        title: '最新比例',
        says: '同上，以预算的比例表示，从 0 到 1。',
        empty: '按策略',
      },
      chunk: {
        title: '分块',
        says: '一次读取这么多个 token：越多越快，占用内存也越多。',
        empty: '',
      },
      evict_every: {
        title: '淘汰间隔',
        says: '写出超过预算这么多个 token 后，再一并淘汰。',
        empty: '',
      },
      recall_share: {
        title: '召回比例',
        says: '一个问题最多可用后备存储填充预算的这一比例。',
        empty: '',
      },
      recall_every: {
        title: '再次召回',
        says: '回答过程中，每写这么多个 token 就再查一次后备存储。',
        empty: '从不',
      },
      store_limit: {
        title: '存储上限 (MiB)',
        says: '后备存储最多占用这么多内存；0 表示不存储，被淘汰的文字即丢失。',
        empty: '空闲的一半',
      },
    },
  },
};
