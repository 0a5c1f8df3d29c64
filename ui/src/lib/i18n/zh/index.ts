import type { Catalogue } from '..';
import { cache } from './cache';
import { chats } from './chats';
import { common } from './common';
import { compare } from './compare';
import { composer } from './composer';
import { documents } from './documents';
import { heatmap } from './heatmap';
import { memory } from './memory';
import { models } from './models';
import { preview } from './preview';
import { settings } from './settings';
import { shell } from './shell';
import { shortcuts } from './shortcuts';
import { thread } from './thread';

export const zh: Catalogue = {
  cache,
  chats,
  common,
  compare,
  composer,
  documents,
  heatmap,
  memory,
  models,
  preview,
  settings,
  shell,
  shortcuts,
  thread,
};
