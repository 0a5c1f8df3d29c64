import type { Catalogue } from '..';
import { numbersOf } from '../numbers';

const { count } = numbersOf('zh');

export const documents: Catalogue['documents'] = {
  pages: (n) => `${count(n)} 页`,
  tokens: (n) => `${count(n)} 个 token`,
  locked: '已加密',
  reading: '正在读取…',
  readingPage: (page, all) => `第 ${count(page)} 页，共 ${count(all)} 页`,
  readingLabel: (name) => `正在读取 ${name}`,
  notAttached: '未添加',
  counting: '正在计数…',
  tokensUnknown: '打开模型后才能得知 token 数',
  cancelReading: (name) => `取消读取 ${name}`,
  remove: '移除',
  removeNamed: (name) => `移除 ${name}`,
  password: '此 PDF 的密码',
  passwordOf: (name) => `${name} 的密码`,
  unlock: '打开',
  wrongPassword: '密码不正确，请再试一次。',
  drop: '松开即可添加',
  dropKinds: 'PDF、文本或 Markdown。.gguf 文件会作为模型打开。',
  wrongKind: 'Cistern 可以读取 PDF、.txt 和 .md 文件，请先转换这个文件。',
  empty: '这个文件是空的。',
  pdf: {
    cancelled: '已取消读取。',
    password: '读取此 PDF 需要密码。',
    broken: '此文件已损坏或不是 PDF，无法读取。',
    unreadable: (detail) => `无法读取此 PDF（${detail}）。`,
    allDamaged: '此 PDF 已损坏：没有一页可以读取。',
    blank: '此 PDF 是空白的：其中没有文字。',
    allImages: (pages) =>
      pages === 1
        ? '第 1 页是图片，没有文字。请先进行 OCR 识别，再添加识别后的文件。'
        : `全部 ${count(pages)} 页都是图片，没有文字。请先进行 OCR 识别，再添加识别后的文件。`,
    images: (pages) => `第 ${pages} 页是图片，没有文字。`,
    damaged: (pages) => `第 ${pages} 页已损坏，无法读取。`,
  },
};
